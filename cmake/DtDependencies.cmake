# Every package the project needs, named as Debian 12 names it when it is missing; dt_remedy says what else helps.
set(dt_remedy "scripts/install-deps does it")
macro(dt_require package debian)
  find_package(${package} ${ARGN})
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${package} was not found: apt-get install ${debian} (${dt_remedy})")
  endif()
endmacro()

# Static, so that a package runs without Boost 1.81.
set(Boost_USE_STATIC_LIBS ON)
# Boost 1.74, Debian's default, does not build as C++20 with Asio's coroutines.
dt_require(Boost libboost1.81-dev\ libboost-program-options1.81-dev 1.81 CONFIG COMPONENTS program_options)
dt_require(fmt libfmt-dev CONFIG)
# Static as well. Debian's fmt is a shared library; its headers hold the source.
get_target_property(dt_fmt_type fmt::fmt TYPE)
if(dt_fmt_type STREQUAL "STATIC_LIBRARY")
  add_library(dt_fmt ALIAS fmt::fmt)
else()
  add_library(dt_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt.cpp)
  target_include_directories(dt_fmt PUBLIC $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_definitions(dt_fmt PUBLIC $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
endif()
dt_require(tl-expected libexpected-dev CONFIG)
dt_require(libssh libssh-dev CONFIG)
dt_require(nlohmann_json nlohmann-json3-dev CONFIG)
dt_require(OpenSSL libssl-dev COMPONENTS Crypto)
dt_require(ZLIB zlib1g-dev)
dt_require(Threads libc6-dev)

add_library(dt_asio STATIC ${CMAKE_CURRENT_LIST_DIR}/asio.cpp)
target_link_libraries(dt_asio PUBLIC Boost::headers Threads::Threads)
target_compile_definitions(dt_asio PUBLIC BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_DISABLE_BOOST_COROUTINE
  BOOST_ASIO_SEPARATE_COMPILATION)

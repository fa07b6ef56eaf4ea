# Warnings, sanitizers and linker for all our targets; link dt_options PRIVATE.
add_library(dt_options INTERFACE)
target_compile_options(dt_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual)
# g++ 12 at -O2 takes Asio's coroutine frames, made and freed by its own operators, for a mismatch.
target_compile_options(dt_options INTERFACE $<$<AND:$<CXX_COMPILER_ID:GNU>,$<NOT:$<CONFIG:Debug>>>:-Wno-mismatched-new-delete>)
if(DT_WERROR)
  target_compile_options(dt_options INTERFACE -Werror)
endif()
if(DT_SANITIZE)
  add_compile_options(-fsanitize=${DT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${DT_SANITIZE})
  # Compilers do not agree on how a program sees it.
  if(DT_SANITIZE MATCHES "address")
    add_compile_definitions(DT_ASAN)
  elseif(DT_SANITIZE MATCHES "thread")
    add_compile_definitions(DT_TSAN)
  endif()
  if(DT_SANITIZE MATCHES "undefined" AND NOT DT_SANITIZE MATCHES "fuzzer")
    # null and alignment checks take a third of the time; ASan also stops at a null pointer, and the
    # fuzzers have all checks. With vptr or function a program in C, or one that opens a C library with
    # dlopen(), does not link or raises a false alarm.
    add_compile_options(-fno-sanitize=null,alignment,vptr)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      add_compile_options(-fno-sanitize=function)
    endif()
  endif()
  if(DT_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND NOT DT_SANITIZE MATCHES "fuzzer")
    # A heap allocation for each frame: half of the tests' time. The fuzzers have it.
    add_compile_options(-fsanitize-address-use-after-return=never)
  endif()
  if(DT_SANITIZE MATCHES "thread")
    # Asio's fences are outside TSan's model; TSan builds are optimised, so the false alarm above occurs here, too.
    add_compile_options(-Wno-tsan -Wno-mismatched-new-delete)
  endif()
endif()
# No program has the folder of the sources: two clones make the same bytes, and ccache finds the objects of both.
# With CCACHE_BASEDIR the compiler sees that folder from the build folder on.
# A build ID is a digest of the debug information, too, which has that folder.
file(RELATIVE_PATH dt_to_source ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
foreach(dt_folder ${PROJECT_SOURCE_DIR} ${dt_to_source})
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${dt_folder}/=>)
endforeach()
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_link_options(-Wl,--build-id=none)
endif()
# What of a build folder's name an installation's patch leaves in a program, too.
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
# All code is linked into libdtkv.so or next to it.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# For programs that run on hosts with another libstdc++ than the build machine. Exceptions use the
# host's own libgcc_s: a process must have a single unwinder.
add_library(dt_any_host OBJECT ${CMAKE_CURRENT_LIST_DIR}/any_host.cpp)
if(NOT DT_SANITIZE)  # a sanitizer's own library brings the shared one
  # They are copied to hosts: a tenth less without what of libstdc++ and of ours nobody calls.
  target_link_options(dt_any_host INTERFACE -static-libstdc++ -Wl,--gc-sections)
endif()

find_program(DT_CCACHE ccache)
if(DT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${DT_CCACHE})
endif()
find_program(DT_MOLD mold)
if(DT_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

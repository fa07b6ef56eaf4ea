# dt_version: the output of --version. The commit is read at build time, and the file is rewritten
# only when it changed. Run with -P it is the build step itself.
if(CMAKE_SCRIPT_MODE_FILE)
  # "-dirty" would make every edit relink every program; the commit alone is enough.
  execute_process(COMMAND git -C ${DT_SOURCE} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE DT_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                  RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    set(DT_COMMIT "unknown")
  endif()
  configure_file(${DT_CONFIGURED} ${DT_OUTPUT} @ONLY)
  return()
endif()

if(DT_SANITIZE)
  set(DT_SANITIZE_NOTE ", sanitized: ${DT_SANITIZE}")
endif()
# Substitutes all known values first; the commit's placeholder survives this pass.
set(DT_COMMIT "@DT_COMMIT@")
set(dt_version_dir ${PROJECT_BINARY_DIR}/version)
configure_file(${PROJECT_SOURCE_DIR}/core/base/version.cpp.in ${dt_version_dir}/version.cpp.configured @ONLY)
add_custom_target(dt_version_commit
  COMMAND ${CMAKE_COMMAND} -DDT_SOURCE=${PROJECT_SOURCE_DIR}
          -DDT_CONFIGURED=${dt_version_dir}/version.cpp.configured
          -DDT_OUTPUT=${dt_version_dir}/version.cpp -P ${CMAKE_CURRENT_LIST_FILE}
  BYPRODUCTS ${dt_version_dir}/version.cpp
  COMMENT "" VERBATIM)
add_library(dt_version STATIC ${dt_version_dir}/version.cpp)
add_dependencies(dt_version dt_version_commit)
target_include_directories(dt_version PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(dt_version PRIVATE dt_fmt dt_options)

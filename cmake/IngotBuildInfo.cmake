# Writes <build>/generated/ingot_build_info.h before each build, and touches it only when something changed.
# Included by CMakeLists.txt it defines the target; run as a script (cmake -P) it writes the file.
if(CMAKE_SCRIPT_MODE_FILE)
  set(commit unknown)
  execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE head ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(NOT failed AND EXISTS ${SOURCE}/.git)
    set(commit ${head})
    execute_process(COMMAND git -C ${SOURCE} diff --quiet HEAD RESULT_VARIABLE changed ERROR_QUIET)
    if(changed)
      string(APPEND commit "+changes")
    endif()
  endif()
  configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
  return()
endif()

set(at "@")
set(INGOT_LIBRARIES "{{\"fmt\", \"${fmt_VERSION}\"}, {\"nlohmann-json\", \"${nlohmann_json_VERSION}\"}, \
{\"toml++\", \"${tomlplusplus_VERSION}\"}, {\"CLI11\", \"${CLI11_VERSION}\"}, {\"PCRE2\", \"${PCRE2_VERSION}\"}, \
{\"xxHash\", \"${XXHASH_VERSION}\"}}")
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
get_directory_property(options COMPILE_OPTIONS)
list(FILTER options EXCLUDE REGEX "^-W")
string(JOIN " " flags ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}} ${options})
configure_file(${CMAKE_SOURCE_DIR}/cmake/ingot_build_info.h.in ${CMAKE_BINARY_DIR}/ingot_build_info.h.in @ONLY)
# The first pass filled in what configure knows and left the commit for the second.
add_custom_target(ingot_build_info
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DTEMPLATE=${CMAKE_BINARY_DIR}/ingot_build_info.h.in
          -DOUTPUT=${CMAKE_BINARY_DIR}/generated/ingot_build_info.h -P ${CMAKE_CURRENT_LIST_FILE}
  BYPRODUCTS ${CMAKE_BINARY_DIR}/generated/ingot_build_info.h
  COMMENT "" VERBATIM)
add_dependencies(ingot_core ingot_build_info)
add_dependencies(ingot_core_plain ingot_build_info)

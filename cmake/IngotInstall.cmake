# cmake --install BUILD --prefix X: the program with its manual page, completion and recipes ("program"); the library, its
# headers, and the package for find_package(ingot) ("development"). cpack makes a Debian package of the program.
include(CMakePackageConfigHelpers)
set_target_properties(ingot_core PROPERTIES EXPORT_NAME core)
# What consumers compile has the numerics of the library (docs/numerics.md, rule 7).
target_compile_options(ingot_core INTERFACE -ffp-contract=off -fno-math-errno -fno-trapping-math)
if(TARGET ingot)
  install(TARGETS ingot RUNTIME DESTINATION bin COMPONENT program)
  set(said ${CMAKE_BINARY_DIR}/generated)
  install(CODE "
    set(ENV{PATH} \"/usr/bin:/bin\")
    foreach(words \"man;ingot.1\" \"completion;bash;ingot.bash\" \"completion;zsh;_ingot\" \"completion;fish;ingot.fish\")
      list(POP_BACK words file)
      execute_process(COMMAND $<TARGET_FILE:ingot> \${words} OUTPUT_FILE ${said}/\${file} COMMAND_ERROR_IS_FATAL ANY)
    endforeach()" COMPONENT program)
  install(FILES ${said}/ingot.1 DESTINATION share/man/man1 COMPONENT program)
  install(FILES ${said}/ingot.bash DESTINATION share/bash-completion/completions RENAME ingot COMPONENT program)
  install(FILES ${said}/_ingot DESTINATION share/zsh/vendor-completions COMPONENT program)
  install(FILES ${said}/ingot.fish DESTINATION share/fish/vendor_completions.d COMPONENT program)
  install(DIRECTORY recipes/ DESTINATION share/ingot/recipes COMPONENT program)
  install(DIRECTORY tasks/ DESTINATION share/ingot/tasks COMPONENT program)
  install(FILES README.md CHANGELOG.md LICENSE DESTINATION share/doc/ingot COMPONENT program)
endif()
install(TARGETS ingot_core EXPORT ingot ARCHIVE DESTINATION lib COMPONENT development)
install(DIRECTORY src/ DESTINATION include/ingot COMPONENT development FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_BINARY_DIR}/generated/ingot_isas.h ${CMAKE_BINARY_DIR}/generated/ingot_gpu_builds.h DESTINATION include/ingot COMPONENT development)
install(EXPORT ingot NAMESPACE ingot:: FILE ingot-targets.cmake DESTINATION lib/cmake/ingot COMPONENT development)
configure_package_config_file(cmake/ingot-config.cmake.in ${CMAKE_BINARY_DIR}/ingot-config.cmake
                              INSTALL_DESTINATION lib/cmake/ingot)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/ingot-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/ingot-config.cmake ${CMAKE_BINARY_DIR}/ingot-config-version.cmake DESTINATION lib/cmake/ingot
        COMPONENT development)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ingot)
set(CPACK_PACKAGE_CONTACT "the developers of Ingot <ingot@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains and runs language models, from raw text")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
find_program(INGOT_SHLIBDEPS dpkg-shlibdeps)  # of dpkg-dev: names the packages of the libraries that the program loads
if(INGOT_SHLIBDEPS)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
if(INGOT_NATIVE)  # a package is for other machines too
  set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_BINARY_DIR}/generated/cpack_native.cmake)
  file(WRITE ${CPACK_PROJECT_CONFIG_FILE} "message(FATAL_ERROR \"this build runs on processors like this machine's alone; \
first: cmake --preset release -DINGOT_NATIVE=OFF && cmake --build --preset release\")\n")
endif()
include(CPack)

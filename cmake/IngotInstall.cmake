# cmake --install BUILD --prefix X: the program, the library, its headers, and the package for find_package(ingot).
include(CMakePackageConfigHelpers)
set_target_properties(ingot_core PROPERTIES EXPORT_NAME core)
# What consumers compile has the numerics of the library (docs/numerics.md, rule 7).
target_compile_options(ingot_core INTERFACE -ffp-contract=off -fno-math-errno -fno-trapping-math)
install(TARGETS ingot_core EXPORT ingot ARCHIVE DESTINATION lib)
if(TARGET ingot)
  install(TARGETS ingot RUNTIME DESTINATION bin)
endif()
install(DIRECTORY src/ DESTINATION include/ingot FILES_MATCHING PATTERN "*.h")
install(EXPORT ingot NAMESPACE ingot:: FILE ingot-targets.cmake DESTINATION lib/cmake/ingot)
configure_package_config_file(cmake/ingot-config.cmake.in ${CMAKE_BINARY_DIR}/ingot-config.cmake
                              INSTALL_DESTINATION lib/cmake/ingot)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/ingot-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/ingot-config.cmake ${CMAKE_BINARY_DIR}/ingot-config-version.cmake DESTINATION lib/cmake/ingot)

# `cmake --install`, and what find_package(moeway) reads.

include(CMakePackageConfigHelpers)
set(moeway_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moeway)

install(TARGETS moeway EXPORT moeway_targets COMPONENT moeway
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/moeway DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT moeway)
install(EXPORT moeway_targets NAMESPACE moeway:: DESTINATION ${moeway_package_dir} COMPONENT moeway)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/moeway-config.cmake.in
  ${PROJECT_BINARY_DIR}/moeway-config.cmake INSTALL_DESTINATION ${moeway_package_dir})
# Until 1.0 a new minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/moeway-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/moeway-config.cmake ${PROJECT_BINARY_DIR}/moeway-config-version.cmake
  DESTINATION ${moeway_package_dir} COMPONENT moeway)

if(TARGET moeway_program)
  file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(moeway_program PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS moeway_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT moeway_program)
endif()

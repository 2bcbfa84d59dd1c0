# What the Python package has of a build: `cmake --install <build> --component python --prefix <folder of the package>`,
# which pyproject.toml does for the wheel. The package finds both below its own folder.

if(NOT BUILD_SHARED_LIBS)
  return()
endif()
# One file, named as programs that link it ask for it: a wheel has no symbolic links.
install(FILES $<TARGET_FILE:moeway> DESTINATION lib COMPONENT python EXCLUDE_FROM_ALL
  RENAME libmoeway.so.${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
if(TARGET moeway_program)
  set_property(TARGET moeway_program APPEND PROPERTY INSTALL_RPATH "$ORIGIN/../lib")
  install(TARGETS moeway_program RUNTIME DESTINATION bin COMPONENT python EXCLUDE_FROM_ALL)
endif()

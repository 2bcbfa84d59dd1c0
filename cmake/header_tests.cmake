# Each public header alone, as the first and only include, twice, under stricter warnings than ours: whoever includes it
# has warnings of their own. c_api.h also as C99.

file(GLOB public_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include
  ${PROJECT_SOURCE_DIR}/include/moeway/*.h)
set(header_sources "")
foreach(header IN LISTS public_headers)
  get_filename_component(name ${header} NAME_WE)
  set(generated ${PROJECT_BINARY_DIR}/tests/headers/${name}.cc)
  file(CONFIGURE OUTPUT ${generated} CONTENT "#include <${header}>\n#include <${header}>\n")
  list(APPEND header_sources ${generated})
endforeach()
add_library(moeway_headers_alone OBJECT ${header_sources})
target_include_directories(moeway_headers_alone PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_compile_features(moeway_headers_alone PRIVATE cxx_std_20)
target_compile_options(moeway_headers_alone PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  -Wsign-conversion -Wold-style-cast -Wundef -Wnon-virtual-dtor -Werror)
set_target_properties(moeway_headers_alone PROPERTIES CXX_EXTENSIONS OFF)

set(generated ${PROJECT_BINARY_DIR}/tests/headers/c_api.c)
file(CONFIGURE OUTPUT ${generated} CONTENT "#include <moeway/c_api.h>\n#include <moeway/c_api.h>\n")
add_library(moeway_header_as_c99 OBJECT ${generated})
target_include_directories(moeway_header_as_c99 PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_compile_options(moeway_header_as_c99 PRIVATE -Wall -Wextra -Wundef -Wstrict-prototypes
  -pedantic-errors -Werror)
set_target_properties(moeway_header_as_c99 PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF)

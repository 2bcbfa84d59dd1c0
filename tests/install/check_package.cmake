# Installs a finished build into an empty folder, builds the consumer against it as a stranger would, and runs it.
#   cmake -D build=... -D source=... -D work=... -D version=... -D cxx=... -D c=... -P check_package.cmake

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nended with ${result}:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${work})
run(${CMAKE_COMMAND} --install ${build} --prefix ${work}/prefix --component moeway)
# The library's own dependencies are not the consumer's.
set(without "")
foreach(package fmt CLI11 nlohmann_json GTest MPI)
  list(APPEND without -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
run(${CMAKE_COMMAND} -S ${source} -B ${work}/build -DCMAKE_PREFIX_PATH=${work}/prefix -Dexpected_version=${version}
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${cxx} -DCMAKE_C_COMPILER=${c} ${without})
run(${CMAKE_COMMAND} --build ${work}/build)
run(${work}/build/consumer_cc ${version})
run(${work}/build/consumer_c ${version})

# The shared library shows its interface and nothing else.
file(GLOB library ${work}/prefix/lib*/libmoeway.so ${work}/prefix/lib/*/libmoeway.so)
if(library)
  execute_process(COMMAND nm --dynamic --defined-only --format=posix ${library} OUTPUT_VARIABLE symbols RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "nm cannot read ${library}")
  endif()
  string(REGEX MATCHALL "[^\n]+" symbols "${symbols}")
  list(FILTER symbols EXCLUDE REGEX "^moeway_[a-z0-9_]+ T ")
  if(symbols)
    message(FATAL_ERROR "${library} shows more than the interface: ${symbols}")
  endif()
endif()
file(REMOVE_RECURSE ${work})

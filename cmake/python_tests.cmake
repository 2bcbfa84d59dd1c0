# The suite "python": each file of tests/python is a test, run by the first interpreter that has numpy and pytest. Not
# with sanitizers: a library that is built with them can only be loaded by a program that is, too.

set(moeway_python "")
if(BUILD_SHARED_LIBS AND NOT MOEWAY_SANITIZE)
  foreach(candidate IN ITEMS ${Python3_EXECUTABLE} /usr/bin/python3)
    execute_process(COMMAND ${candidate} -c "import numpy, pytest" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed EQUAL 0)
      set(moeway_python ${candidate})
      break()
    endif()
  endforeach()
  if(NOT moeway_python)
    message(WARNING "tests/python is left out: no python3 has numpy and pytest (python3-numpy, python3-pytest)")
  endif()
endif()

if(moeway_python)
  file(GLOB python_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/python/test_*.py)
  foreach(script IN LISTS python_tests)
    get_filename_component(name ${script} NAME_WE)
    string(REGEX REPLACE "^test_" "" name ${name})
    add_test(NAME python.${name} COMMAND ${moeway_python} -B -m pytest -q -rs -p no:cacheprovider ${script})
    # pytest ends with 5 where a whole file was skipped; -rs says why.
    set_tests_properties(python.${name} PROPERTIES TIMEOUT ${moeway_test_timeout_s} LABELS python SKIP_RETURN_CODE 5
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
      ENVIRONMENT "MOEWAY_LIBRARY=$<TARGET_FILE:moeway>;MOEWAY_BUILD=${PROJECT_BINARY_DIR};PYTHONDONTWRITEBYTECODE=1")
  endforeach()
  list(APPEND moeway_suites python)
endif()

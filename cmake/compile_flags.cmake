# What every compilation of this project has in common. Nothing here reaches those who use the library.

add_library(moeway_flags INTERFACE)
target_compile_features(moeway_flags INTERFACE cxx_std_20)
target_compile_options(moeway_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion>
  # "Same inputs, same bits": a multiplication and an addition become one instruction where the source says so, and
  # nowhere else.
  $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>)
if(MOEWAY_WERROR)
  target_compile_options(moeway_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
endif()
if(MOEWAY_SANITIZE)
  set(sanitize -fsanitize=${MOEWAY_SANITIZE} -fno-omit-frame-pointer)
  if(MOEWAY_SANITIZE MATCHES undefined)
    # Without the first a finding is a line in the log of a passed test. The check of vtables asks the system whether it
    # can read an address, and so reports faults where a test takes file descriptors away.
    list(APPEND sanitize -fno-sanitize-recover=undefined -fno-sanitize=vptr)
  endif()
  target_compile_options(moeway_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:${sanitize}>)
  target_link_options(moeway_flags INTERFACE ${sanitize})
endif()
if(MOEWAY_FUZZ)
  # Tells libFuzzer which branches an input has taken; the programs themselves link the rest (cmake/fuzz.cmake).
  target_compile_options(moeway_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>)
endif()

set(moeway_kernel_flags "")
if(MOEWAY_X86_64_V3 AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(moeway_kernel_flags -mavx2 -mfma -mf16c)
endif()

// Choices of a launch that a kernel takes at compile time.
#pragma once

#include <type_traits>

#include "exec/numeric.h"

namespace moeway::launch {

// Which half of an operation a launch does.
enum class Half { kSend, kRecv, kBoth };

// Whether a launch of both halves is two launches: with replicas, of which the kernels of both halves know nothing.
inline bool is_split(Half half, bool replicated) { return half == Half::kBoth && replicated; }

// Element types of combine's rows and sums.
enum class Element { kBf16, kF16, kF32 };

// Calls f(std::integral_constant<Half, half>).
template <class F>
auto with_half(Half half, F f) {
  switch (half) {
    case Half::kSend:
      return f(std::integral_constant<Half, Half::kSend>{});
    case Half::kRecv:
      return f(std::integral_constant<Half, Half::kRecv>{});
    case Half::kBoth:
      break;
  }
  return f(std::integral_constant<Half, Half::kBoth>{});
}

// Calls f(std::bool_constant<choice>).
template <class F>
auto with_bool(bool choice, F f) {
  return choice ? f(std::true_type{}) : f(std::false_type{});
}

// Calls f(std::bool_constant<usual>), but for sums of another type than their rows always with false: these have no kernels
// for the usual case.
template <class Row, class Sum, class F>
auto with_usual(bool usual, F f) {
  if constexpr (std::is_same_v<Row, Sum>) {
    return with_bool(usual, f);
  } else {
    return f(std::false_type{});
  }
}

// Calls f with a value of the element's type.
template <class F>
auto with_type(Element element, F f) {
  switch (element) {
    case Element::kBf16:
      return f(exec::Bf16{});
    case Element::kF16:
      return f(exec::F16{});
    case Element::kF32:
      break;
  }
  return f(float{});
}

}  // namespace moeway::launch

// The default floating-point environment while a kernel runs: rounding to nearest, subnormals kept. Whatever a caller's
// thread has set, the same inputs give the same bits.
#pragma once

#include <cfenv>

namespace moeway::exec {

class FloatEnvironment {
 public:
  FloatEnvironment() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatEnvironment() { std::fesetenv(&before_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace moeway::exec

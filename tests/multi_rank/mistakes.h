// Callers' mistakes, one argument at a time: what is spoilt, and what the message must say.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {

template <class Arguments>
struct Mistake {
  const char* name;
  std::function<void(Arguments&)> spoil;
  std::vector<std::string> parts;  // Of the message: the argument, its value, what was expected.
  StatusCode code = MOEWAY_INVALID_ARGUMENT;
};

// Mistakes that any tensor argument can hold. `argument` finds it among the arguments.
template <class Arguments>
std::vector<Mistake<Arguments>> tensor_mistakes(const std::string& name, moeway_tensor& (*argument)(Arguments&),
                                                DType wrong_dtype) {
  using Spoilt = Mistake<Arguments>;
  return {
      Spoilt{"not given", [argument](Arguments& a) { argument(a) = Tensor(); }, {name, "0"}},
      Spoilt{"a dimension too few", [argument](Arguments& a) { --argument(a).ndim; }, {name, "ndim"}},
      Spoilt{"a negative number of dimensions", [argument](Arguments& a) { argument(a).ndim = -1; }, {name, "-1"}},
      Spoilt{"four dimensions", [argument](Arguments& a) { argument(a).ndim = 4; }, {name, "4"}},
      Spoilt{"another type",
             [argument, wrong_dtype](Arguments& a) { argument(a).dtype = wrong_dtype; },
             {name, moeway_dtype_name(wrong_dtype)}},
      Spoilt{"on a GPU",
             [argument](Arguments& a) { argument(a).device_type = MOEWAY_CUDA, argument(a).device_index = 3; },
             {name, "CPU", "3"}},
      Spoilt{"a column too many",
             [argument](Arguments& a) { ++argument(a).shape[argument(a).ndim - 1]; },
             {name, "shape"}},
      Spoilt{
          "a column too few", [argument](Arguments& a) { --argument(a).shape[argument(a).ndim - 1]; }, {name, "shape"}},
      Spoilt{"a negative number of rows", [argument](Arguments& a) { argument(a).shape[0] = -1; }, {name, "-1"}},
      Spoilt{"null", [argument](Arguments& a) { argument(a).data = nullptr; }, {name, "null"}},
  };
}

// A small job whose rank has at least one token, route and row everywhere.
inline Case mistakes_case(const LayoutForm& layout, const TokenForm& form = kTokenForms[4]) {
  Case job;
  job.shape.num_ranks = 2;
  job.shape.num_experts = 6;
  job.shape.topk = 3;
  job.shape.hidden = 130;
  job.shape.max_tokens = 5;
  layout.apply(job.shape);
  form.apply(job.shape);
  job.shape.output_dtype = reference::DType::kF32;
  job.rounds = 1;
  const reference::Shape shape = job.shape;
  job.batch = [shape](int round) {
    return make_batch(shape, reference::Values::kExact, reference::Routes::kUniform, {4, 3}, 31, round);
  };
  return job;
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace moeway::multi_rank

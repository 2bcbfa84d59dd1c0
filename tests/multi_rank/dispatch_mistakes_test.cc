// Every argument of the dispatch calls, spoilt: the call says what is wrong, and the right call that follows works, so
// that nothing had been sent.
#include <gtest/gtest.h>

#include <limits>

#include "multi_rank/mistakes.h"

namespace moeway::multi_rank {
namespace {

using In = DispatchInput;
using Out = DispatchOutput;

// Changes the first id. The ids stay where they are: the tensor must be dense int64.
void set_id(In& in, int64_t id) { *static_cast<int64_t*>(in.topk_idx.data) = id; }

std::vector<Mistake<In>> input_mistakes(const Case& job) {
  std::vector<Mistake<In>> mistakes;
  append(mistakes, tensor_mistakes<In>(
                       "x", [](In& in) -> moeway_tensor& { return in.x; }, kF16));
  append(mistakes, tensor_mistakes<In>(
                       "topk_idx", [](In& in) -> moeway_tensor& { return in.topk_idx; }, kF32));
  if (job.shape.scales != reference::Scales::kNone) {
    append(mistakes, tensor_mistakes<In>(
                         "scales", [](In& in) -> moeway_tensor& { return in.scales; }, kBf16));
  } else {
    mistakes.push_back({"scales without need", [](In& in) { in.scales = in.x; }, {"scales"}});
  }
  if (job.shape.weights == reference::Weights::kAtDispatch) {
    append(mistakes, tensor_mistakes<In>(
                         "topk_weights", [](In& in) -> moeway_tensor& { return in.topk_weights; }, kBf16));
  } else {
    mistakes.push_back({"weights that come with combine",
                        [](In& in) { in.topk_weights = in.topk_idx, in.topk_weights.dtype = kF32; },
                        {"topk_weights", "combine"}});
  }
  append(mistakes, {{"ids as bytes", [](In& in) { in.topk_idx.dtype = kBytes; }, {"topk_idx", "bytes", "i32", "i64"}},
                    {"more tokens than the maximum", [](In& in) { in.x.shape[0] = 6; }, {"x", "6", "max_tokens", "5"}},
                    {"far more tokens", [](In& in) { in.x.shape[0] = int64_t{1} << 40; }, {"x", "1099511627776", "5"}},
                    {"ids of fewer tokens", [](In& in) { --in.topk_idx.shape[0]; }, {"topk_idx", "shape"}},
                    {"an id just too large", [](In& in) { set_id(in, 6); }, {"topk_idx[0, 0]", "6", "-1", "5"}},
                    {"an id below -1", [](In& in) { set_id(in, -2); }, {"topk_idx[0, 0]", "-2"}},
                    {"the largest id", [](In& in) { set_id(in, INT32_MAX); }, {"topk_idx[0, 0]", "2147483647"}},
                    {"the smallest id", [](In& in) { set_id(in, INT32_MIN); }, {"topk_idx[0, 0]", "-2147483648"}},
                    {"an id that 32 bits would make right",
                     [](In& in) { set_id(in, (int64_t{1} << 32) + 1); },
                     {"topk_idx[0, 0]", "4294967297"}},
                    {"an id in the last place",
                     [](In& in) { static_cast<int64_t*>(in.topk_idx.data)[in.topk_idx.shape[0] * 3 - 1] = 77; },
                     {"topk_idx[", ", 2]", "77"}},
                    {"an older struct", [](In& in) { in.struct_size = 16; }, {"struct_size", "16"}}});
  return mistakes;
}

template <class Tensors>
moeway_tensor& x_of(Tensors& tensors) {
  return tensors.x;
}

std::vector<Mistake<Out>> expert_output_mistakes(const Case& job) {
  std::vector<Mistake<Out>> mistakes;
  append(mistakes, tensor_mistakes<Out>("x", x_of<Out>, kF16));
  std::vector<Mistake<Out>> sources = tensor_mistakes<Out>(
      "row_source", [](Out& out) -> moeway_tensor& { return out.row_source; }, kI64);
  std::vector<Mistake<Out>> firsts = tensor_mistakes<Out>(
      "first_row", [](Out& out) -> moeway_tensor& { return out.first_row; }, kI32);
  // These two are optional: "not given" is right, and so is one dimension less of one.
  sources.erase(sources.begin());
  firsts.erase(firsts.begin(), firsts.begin() + 2);
  append(mistakes, sources);
  append(mistakes, firsts);
  std::vector<Mistake<Out>> weights = tensor_mistakes<Out>(
      "row_weight", [](Out& out) -> moeway_tensor& { return out.row_weight; }, kF16);
  weights.erase(weights.begin());
  if (job.shape.weights == reference::Weights::kAtDispatch) append(mistakes, weights);
  if (job.shape.weights == reference::Weights::kAtCombine)
    append(mistakes, {{"weights of rows", [](Out& out) { out.row_weight = out.x; }, {"row_weight", "at combine"}}});
  append(mistakes, {{"token_major's ids", [](Out& out) { out.topk_idx = out.num_rows; }, {"topk_idx"}},
                    {"token_major's weights", [](Out& out) { out.topk_weights = out.num_rows; }, {"topk_weights"}},
                    {"a row too few", [](Out& out) { --out.x.shape[out.x.ndim - 2]; }, {"x.shape", ">="}}});
  return mistakes;
}

std::vector<Mistake<Out>> token_output_mistakes() {
  std::vector<Mistake<Out>> mistakes = tensor_mistakes<Out>("x", x_of<Out>, kF16);
  // Without x the tokens stay in the heap, and then the scales must, too.
  mistakes[0] = {"scales without x", [](Out& out) { out.x = Tensor(); }, {"scales", "x"}};
  append(mistakes, tensor_mistakes<Out>(
                       "topk_idx", [](Out& out) -> moeway_tensor& { return out.topk_idx; }, kI64));
  append(mistakes, tensor_mistakes<Out>(
                       "topk_weights", [](Out& out) -> moeway_tensor& { return out.topk_weights; }, kF16));
  append(mistakes, {{"row_source", [](Out& out) { out.row_source = out.topk_idx; }, {"row_source"}},
                    {"row_weight", [](Out& out) { out.row_weight = out.topk_weights; }, {"row_weight"}},
                    {"first_row", [](Out& out) { out.first_row = out.num_rows; }, {"first_row"}},
                    {"a row too many", [](Out& out) { ++out.x.shape[0]; }, {"x.shape"}}});
  return mistakes;
}

std::vector<Mistake<Out>> output_mistakes(const Case& job) {
  const bool token_major = job.shape.layout == reference::Layout::kTokenMajor;
  std::vector<Mistake<Out>> mistakes = token_major ? token_output_mistakes() : expert_output_mistakes(job);
  std::vector<Mistake<Out>> counts = tensor_mistakes<Out>(
      "num_rows", [](Out& out) -> moeway_tensor& { return out.num_rows; }, kI64);
  append(mistakes, counts);
  if (job.shape.scales != reference::Scales::kNone)
    append(mistakes, tensor_mistakes<Out>(
                         "scales", [](Out& out) -> moeway_tensor& { return out.scales; }, kF16));
  append(mistakes, {{"elements apart", [](Out& out) { out.x.strides[out.x.ndim - 1] = 2; }, {"x.strides", "2", "1"}},
                    {"rows that overlap",
                     [](Out& out) { out.x.strides[out.x.ndim - 2] = out.x.shape[out.x.ndim - 1] - 1; },
                     {"x.strides", "129"}},
                    {"rows in one place", [](Out& out) { out.x.strides[out.x.ndim - 2] = 0; }, {"x.strides", "0"}},
                    {"a stride beyond all addresses",
                     [](Out& out) { out.x.strides[out.x.ndim - 2] = int64_t{1} << 62; },
                     {"x.strides", "4611686018427387904"}},
                    {"counts in one place", [](Out& out) { out.num_rows.strides[0] = 0; }, {"num_rows.strides", "0"}},
                    {"a younger struct", [](Out& out) { out.struct_size = 9999; }, {"struct_size", "9999"}}});
  return mistakes;
}

// All of the mistakes, each followed by nothing but the next; at the end one right round.
template <class Arguments, class Make, class Call>
void make_mistakes(Rank& rank, const std::vector<Mistake<Arguments>>& mistakes, Make make, Call call) {
  for (const Mistake<Arguments>& mistake : mistakes) {
    Arguments arguments = make();
    mistake.spoil(arguments);
    rank.expect_error(call(arguments), mistake.code, mistake.parts, mistake.parts.front() + ", " + mistake.name);
  }
}

void run(const Case& job, const std::function<void(Rank&, Job&)>& body) {
  const auto batches = make_batches(job);
  expect_runs(job.shape.num_ranks, As::kThreads, [&](Rank& rank) {
    Job own(rank, job, batches);
    if (own.create()) body(rank, own);
  });
}

TEST(DispatchMistakes, OfTheInputAreNamedAndSendNothing) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const TokenForm& form : {kTokenForms[0], kTokenForms[4]}) {
      const Case job = mistakes_case(layout, form);
      run(job, [&](Rank& rank, Job& own) {
        const auto make = [&] { return own.make_input(0); };
        make_mistakes<In>(rank, input_mistakes(job), make,
                          [&](const In& in) { return own.all_to_all().dispatch_send(in).status(); });
        DispatchOutput out = own.make_output(0);
        make_mistakes<In>(rank, input_mistakes(job), make,
                          [&](const In& in) { return own.all_to_all().dispatch(in, out).status(); });
        if (own.dispatch(0)) own.combine(0);
      });
    }
  }
}

TEST(DispatchMistakes, OfTheOutputAreNamedAndLoseNothing) {
  for (const LayoutForm& layout : kLayoutForms) {
    const Case job = mistakes_case(layout);
    run(job, [&](Rank& rank, Job& own) {
      const auto make = [&] { return own.make_output(0); };
      // In the call that does both halves, they are found before anything is sent.
      const DispatchInput in = own.make_input(0);
      make_mistakes<Out>(rank, output_mistakes(job), make,
                         [&](const Out& out) { return own.all_to_all().dispatch(in, out).status(); });
      if (!own.dispatch_send(0)) return;
      make_mistakes<Out>(rank, output_mistakes(job), make,
                         [&](const Out& out) { return own.all_to_all().dispatch_recv(own.routing(0), out); });
      if (own.dispatch_recv(0)) own.combine(0);
    });
  }
}

TEST(DispatchMistakes, OfOneRankLeaveTheOthersWaitingUnharmed) {
  for (const As as : {As::kThreads, As::kProcesses}) {
    const Case job = mistakes_case(kLayoutForms[0]);
    const auto batches = make_batches(job);
    expect_runs(2, as, [&](Rank& rank) {
      Job own(rank, job, batches);
      if (!own.create()) return;
      if (rank.rank() == 1) {
        make_mistakes<In>(
            rank, input_mistakes(job), [&] { return own.make_input(0); },
            [&](const In& in) { return own.all_to_all().dispatch_send(in).status(); });
      }
      if (own.dispatch(0)) own.combine(0);
    });
  }
}

TEST(DispatchMistakes, ABrokenPromiseOfDistinctExpertsNamesTokenRouteAndExpert) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job = mistakes_case(layout);
    job.shape.distinct_experts = true;
    run(job, [&](Rank& rank, Job& own) {
      DispatchInput in = own.make_input(0);
      auto* ids = static_cast<int64_t*>(in.topk_idx.data);
      ids[3] = 2, ids[4] = 5, ids[5] = 2;
      rank.expect_error(own.all_to_all().dispatch_send(in).status(), MOEWAY_INVALID_ARGUMENT,
                        {"topk_idx[1, 2]", "2", "distinct"}, "the same expert twice");
      ids[3] = -1, ids[4] = 5, ids[5] = -1;  // No route twice is no expert twice.
      const DispatchOutput out = own.make_output(0);
      rank.expect_ok(own.all_to_all().dispatch(in, out).status(), "two routes to nobody");
    });
  }
}

TEST(DispatchMistakes, NullPointersOfTheCInterface) {
  const Case job = mistakes_case(kLayoutForms[0]);
  run(job, [&](Rank& rank, Job& own) {
    moeway_all_to_all* object = own.all_to_all().get();
    const DispatchInput in = own.make_input(0);
    const DispatchOutput out = own.make_output(0);
    Routing routing{};
    const auto refused = [&](moeway_status code, const char* argument) {
      rank.expect_error(Status::from_c(code), MOEWAY_INVALID_ARGUMENT, {argument, "null"}, argument);
    };
    refused(moeway_dispatch_send(nullptr, &in, &routing), "all_to_all");
    refused(moeway_dispatch_send(object, nullptr, &routing), "input");
    refused(moeway_dispatch_send(object, &in, nullptr), "routing");
    refused(moeway_dispatch(nullptr, &in, &out, &routing), "all_to_all");
    refused(moeway_dispatch(object, nullptr, &out, &routing), "input");
    refused(moeway_dispatch(object, &in, nullptr, &routing), "output");
    refused(moeway_dispatch(object, &in, &out, nullptr), "routing");
    refused(moeway_dispatch_recv(nullptr, routing, &out), "all_to_all");
    refused(moeway_all_to_all_get_stats(nullptr, nullptr), "all_to_all");
    refused(moeway_all_to_all_get_stats(object, nullptr), "stats");
    refused(moeway_all_to_all_status(nullptr), "all_to_all");
    if (!own.dispatch_send(0)) return;
    refused(moeway_dispatch_recv(object, own.routing(0), nullptr), "output");
    if (own.dispatch_recv(0)) own.combine(0);
  });
}

}  // namespace
}  // namespace moeway::multi_rank

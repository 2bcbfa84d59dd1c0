// Every argument of the combine calls, spoilt: the call says what is wrong, and the right call that follows works.
#include <gtest/gtest.h>

#include "multi_rank/mistakes.h"

namespace moeway::multi_rank {
namespace {

struct Arguments {
  Tensor rows, y, topk_weights;
};

std::vector<Mistake<Arguments>> rows_mistakes(const Case& job) {
  std::vector<Mistake<Arguments>> mistakes = tensor_mistakes<Arguments>(
      "rows", [](Arguments& a) -> moeway_tensor& { return a.rows; }, kF8E4M3);
  const bool token_major = job.shape.layout == reference::Layout::kTokenMajor;
  append(mistakes,
         {{"elements apart", [](Arguments& a) { a.rows.strides[a.rows.ndim - 1] = 2; }, {"rows.strides", "2", "1"}},
          {"a row too few",
           [](Arguments& a) { --a.rows.shape[a.rows.ndim - 2]; },
           {"rows.shape", token_major ? "[" : ">="}}});
  return mistakes;
}

std::vector<Mistake<Arguments>> result_mistakes(const Case& job) {
  std::vector<Mistake<Arguments>> mistakes = tensor_mistakes<Arguments>(
      "y", [](Arguments& a) -> moeway_tensor& { return a.y; }, kBf16);
  append(mistakes, {{"a token too many", [](Arguments& a) { ++a.y.shape[0]; }, {"y.shape"}},
                    {"a token too few", [](Arguments& a) { --a.y.shape[0]; }, {"y.shape"}},
                    {"elements apart", [](Arguments& a) { a.y.strides[1] = 3; }, {"y.strides", "3", "1"}},
                    {"rows that overlap", [](Arguments& a) { a.y.strides[0] = 129; }, {"y.strides", "129", "130"}},
                    {"rows in one place", [](Arguments& a) { a.y.strides[0] = 0; }, {"y.strides", "0"}}});
  if (job.shape.weights == reference::Weights::kAtCombine) {
    append(mistakes, tensor_mistakes<Arguments>(
                         "topk_weights", [](Arguments& a) -> moeway_tensor& { return a.topk_weights; }, kF16));
    append(mistakes, {{"weights of a token less", [](Arguments& a) { --a.topk_weights.shape[0]; }, {"topk_weights"}}});
  }
  return mistakes;
}

bool at_combine(const Case& job) { return job.shape.weights == reference::Weights::kAtCombine; }

Arguments right(const Case& job, Job& own) {
  Arguments arguments{own.rows(0), own.y(0), {}};
  if (at_combine(job)) arguments.topk_weights = own.combine_weights(0);
  return arguments;
}

Status call_recv(const Case& job, Job& own, const Arguments& a) {
  return at_combine(job) ? own.all_to_all().combine_recv(own.routing(0), a.topk_weights, a.y)
                         : own.all_to_all().combine_recv(own.routing(0), a.y);
}

Status call_both(const Case& job, Job& own, const Arguments& a) {
  return at_combine(job) ? own.all_to_all().combine(own.routing(0), a.rows, a.topk_weights, a.y)
                         : own.all_to_all().combine(own.routing(0), a.rows, a.y);
}

using Call = Status (*)(const Case&, Job&, const Arguments&);

void make_mistakes(Rank& rank, const Case& job, Job& own, const std::vector<Mistake<Arguments>>& mistakes, Call call) {
  for (const Mistake<Arguments>& mistake : mistakes) {
    Arguments arguments = right(job, own);
    mistake.spoil(arguments);
    rank.expect_error(call(job, own, arguments), mistake.code, mistake.parts,
                      mistake.parts.front() + ", " + mistake.name);
  }
}

void run(const Case& job, const std::function<void(Rank&, Job&)>& body) {
  const auto batches = make_batches(job);
  expect_runs(job.shape.num_ranks, As::kThreads, [&](Rank& rank) {
    Job own(rank, job, batches);
    if (own.create() && own.dispatch(0)) body(rank, own);
  });
}

TEST(CombineMistakes, AreNamedAndSendNothing) {
  for (const LayoutForm& layout : kLayoutForms) {
    const Case job = mistakes_case(layout);
    run(job, [&](Rank& rank, Job& own) {
      make_mistakes(rank, job, own, rows_mistakes(job), [](const Case&, Job& with, const Arguments& a) {
        return with.all_to_all().combine_send(with.routing(0), a.rows);
      });
      make_mistakes(rank, job, own, rows_mistakes(job), call_both);
      make_mistakes(rank, job, own, result_mistakes(job), call_both);
      own.combine(0);
    });
  }
}

TEST(CombineMistakes, OfTheResultAreNamedAndLoseNothing) {
  for (const LayoutForm& layout : kLayoutForms) {
    const Case job = mistakes_case(layout);
    run(job, [&](Rank& rank, Job& own) {
      if (!own.combine_send(0)) return;
      make_mistakes(rank, job, own, result_mistakes(job), call_recv);
      own.combine_recv(0);
    });
  }
}

TEST(CombineMistakes, WeightsInTheWrongPlace) {
  for (const LayoutForm& layout : kLayoutForms) {
    const Case job = mistakes_case(layout);
    run(job, [&](Rank& rank, Job& own) {
      const Tensor weights = own.combine_weights(0);
      const Status both = at_combine(job) ? own.all_to_all().combine(own.routing(0), own.rows(0), own.y(0))
                                          : own.all_to_all().combine(own.routing(0), own.rows(0), weights, own.y(0));
      rank.expect_error(both, MOEWAY_INVALID_ARGUMENT, {"topk_weights"}, "combine");
      if (!own.combine_send(0)) return;
      const Status recv = at_combine(job) ? own.all_to_all().combine_recv(own.routing(0), own.y(0))
                                          : own.all_to_all().combine_recv(own.routing(0), weights, own.y(0));
      rank.expect_error(recv, MOEWAY_INVALID_ARGUMENT, {"topk_weights"}, "combine_recv");
      own.combine_recv(0);
    });
  }
}

TEST(CombineMistakes, OfAnUnweightedRouting) {
  for (const LayoutForm& layout : kLayoutForms) {
    const Case job = mistakes_case(layout);
    run(job, [&](Rank& rank, Job& own) {
      AllToAll& object = own.all_to_all();
      const Tensor weights = own.combine_weights(0);
      Routing wrong = own.routing(0);
      const Routing right = unweighted(wrong);
      wrong.unweighted = 2;
      for (const Status& status :
           {object.combine_send(wrong, own.rows(0)), object.combine(wrong, own.rows(0), own.y(0))})
        rank.expect_error(status, MOEWAY_INVALID_ARGUMENT, {"routing.unweighted is 2", "0 or 1"}, "2");
      rank.expect_error(object.combine(right, own.rows(0), weights, own.y(0)), MOEWAY_INVALID_ARGUMENT,
                        {"topk_weights is given, expected none"}, "weights with unweighted");
      if (!own.combine_send(0)) return;
      rank.expect_error(object.combine_recv(right, own.y(0)), MOEWAY_INVALID_ARGUMENT,
                        {"routing.unweighted is 1", "0", "combine_send"}, "halves that differ");
      own.combine_recv(0);
    });
  }
}

TEST(CombineMistakes, NullPointersOfTheCInterface) {
  const Case job = mistakes_case(kLayoutForms[0]);
  run(job, [&](Rank& rank, Job& own) {
    moeway_all_to_all* object = own.all_to_all().get();
    const Routing routing = own.routing(0);
    const Tensor rows = own.rows(0);
    const Tensor y = own.y(0);
    const auto refused = [&](moeway_status code, const char* argument) {
      rank.expect_error(Status::from_c(code), MOEWAY_INVALID_ARGUMENT, {argument, "null"}, argument);
    };
    refused(moeway_combine_send(nullptr, routing, &rows), "all_to_all");
    refused(moeway_combine_send(object, routing, nullptr), "rows");
    refused(moeway_combine(nullptr, routing, &rows, nullptr, &y), "all_to_all");
    refused(moeway_combine(object, routing, nullptr, nullptr, &y), "rows");
    refused(moeway_combine(object, routing, &rows, nullptr, nullptr), "y");
    refused(moeway_combine_recv(nullptr, routing, nullptr, &y), "all_to_all");
    refused(moeway_all_to_all_close(nullptr), "all_to_all");
    if (!own.combine_send(0)) return;
    refused(moeway_combine_recv(object, routing, nullptr, nullptr), "y");
    own.combine_recv(0);
  });
}

}  // namespace
}  // namespace moeway::multi_rank

// Dispatch that makes fp8 of bf16 on the way (docs/quantisation.md), and what it refuses.
#include <gtest/gtest.h>

#include "multi_rank/mistakes.h"

namespace moeway::multi_rank {
namespace {

struct Kind {
  reference::Scales scales;
  reference::Quantise quantise;
};
constexpr Kind kKinds[] = {{reference::Scales::kF32, reference::Quantise::kLargest},
                           {reference::Scales::kF32, reference::Quantise::kPowerOfTwo},
                           {reference::Scales::kUe8m0, reference::Quantise::kPowerOfTwo}};

Case quantising(const LayoutForm& layout, const Kind& kind, int64_t hidden) {
  Case job = mistakes_case(layout);
  job.batch = nullptr;
  job.shape.hidden = hidden;
  job.shape.scales = kind.scales;
  job.shape.quantise = kind.quantise;
  job.values = reference::Values::kArbitrary;
  job.rounds = 3;
  return job;
}

// Blocks that are full, one that is not, rows that start anywhere.
TEST(Quantise, EveryLayoutDeliversElementsAndScalesAsDocumented) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const Kind& kind : kKinds) {
      for (const int64_t hidden : {1, 127, 128, 129, 512}) {
        Case job = quantising(layout, kind, hidden);
        job.views = hidden % 2 == 1 ? Views::kStrided : Views::kDense;
        job.order = hidden % 2 == 1 ? Order::kFused : Order::kPipelined;
        if (!expect_passes(job)) return;
      }
    }
  }
}

// Whatever x holds: NaNs and infinities make the elements of their block NaNs, and nothing else.
TEST(Quantise, AnyBitsTravel) {
  for (const Kind& kind : kKinds) {
    Case job = quantising(kLayoutForms[0], kind, 300);
    job.values = reference::Values::kAnyBits;
    job.combine_every = 0;
    if (!expect_passes(job)) return;
  }
}

TEST(Quantise, ViewsShowWhatWasMade) {
  Case job = quantising(kLayoutForms[4], kKinds[2], 260);
  job.view = true;
  expect_passes(job);
}

TEST(Quantise, TakesBf16WithoutScalesAndNothingElse) {
  const Case job = quantising(kLayoutForms[0], kKinds[0], 130);
  const std::vector<reference::Batch> batches = make_batches(job);
  expect_runs(job.shape.num_ranks, As::kThreads, [&](Rank& rank) {
    Job own(rank, job, batches);
    if (!own.create()) return;
    const auto refused = [&](const char* name, const std::function<void(DispatchInput&)>& spoil,
                             const std::vector<std::string>& parts) {
      DispatchInput in = own.make_input(0);
      spoil(in);
      rank.expect_error(own.all_to_all().dispatch_send(in).status(), MOEWAY_INVALID_ARGUMENT, parts, name);
    };
    refused("x as it is delivered", [](DispatchInput& in) { in.x.dtype = kF8E4M3; }, {"x.dtype", "f8_e4m3", "bf16"});
    refused("x of another type", [](DispatchInput& in) { in.x.dtype = kF16; }, {"x.dtype", "f16", "bf16"});
    refused("scales", [](DispatchInput& in) { in.scales = in.x; }, {"scales", "quantise"});
    own.dispatch(0);
  });
}

TEST(Quantise, IsRefusedForWhatItCannotMake) {
  const auto refused = [](const std::function<void(AllToAllConfig&)>& spoil, const std::vector<std::string>& parts) {
    AllToAllConfig config = make_config(quantising(kLayoutForms[0], kKinds[0], 128));
    spoil(config);
    const Result<AllToAllSizes> sizes = all_to_all_sizes(config, 0, 2);
    ASSERT_FALSE(sizes.ok());
    for (const std::string& part : parts)
      EXPECT_NE(sizes.status().message().find(part), std::string::npos) << sizes.status().message();
  };
  refused([](AllToAllConfig& c) { c.dispatch_dtype = kBf16; },
          {"quantise is largest", "dispatch_dtype bf16", "f8_e4m3"});
  refused([](AllToAllConfig& c) { c.scales = kScalesNone; }, {"quantise", "scales none", "f32 or ue8m0"});
  refused([](AllToAllConfig& c) { c.scales = kScalesBytes, c.scale_bytes = 4; }, {"quantise", "scales bytes"});
  refused([](AllToAllConfig& c) { c.scales = kScalesUe8m0; }, {"quantise is largest", "ue8m0", "power_of_two"});
  refused([](AllToAllConfig& c) { c.quantise = static_cast<Quantise>(3); }, {"quantise is 3"});
}

TEST(Quantise, RanksMustAgreeOnIt) {
  expect_runs(2, As::kThreads, [](Rank& rank) {
    AllToAllConfig config = make_config(quantising(kLayoutForms[0], kKinds[0], 128));
    if (rank.rank() == 1) config.quantise = kQuantisePowerOfTwo;
    rank.expect_error(AllToAll::create(rank.communicator(), config).status(), MOEWAY_MISMATCH,
                      {"quantise", "largest", "power_of_two"}, "create");
  });
}

}  // namespace
}  // namespace moeway::multi_rank

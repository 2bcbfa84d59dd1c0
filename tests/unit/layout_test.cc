// Where things lie: every region of the heap and of the workspace, byte by byte, belongs to one thing alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "layout/experts.h"
#include "layout/heap_layout.h"
#include "layout/replicas.h"
#include "layout/workspace_layout.h"

namespace moeway::layout {
namespace {

TEST(Experts, TheFirstRanksOwnOneMoreAndAllAreOwnedOnce) {
  for (int32_t ranks = 1; ranks <= 17; ++ranks) {
    for (int32_t num = 1; num <= 70; ++num) {
      const Experts experts{num, ranks};
      int32_t next = 0;
      for (int32_t r = 0; r < ranks; ++r) {
        ASSERT_EQ(experts.first(r), next);
        ASSERT_EQ(experts.count(r), num / ranks + (r < num % ranks ? 1 : 0));
        ASSERT_LE(experts.count(r), experts.max_local());
        for (int32_t e = next; e < next + experts.count(r); ++e) {
          ASSERT_EQ(experts.owner(e), r) << num << " on " << ranks;
          ASSERT_EQ(Owners(experts).of(e), r) << num << " on " << ranks;
        }
        next += experts.count(r);
      }
      ASSERT_EQ(next, num);
    }
  }
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  constexpr struct {
    int32_t ranks, replicas;
  } kJobs[] = {{1, 1}, {2, 1}, {3, 1}, {5, 1}, {2, 2}, {6, 2}, {6, 3}, {8, 8}};
  for (const auto& [ranks, replicas] : kJobs) {
    for (const int32_t topk : {1, 2, 7}) {
      for (const int64_t row_bytes : {int64_t{1}, int64_t{15}, int64_t{16}, int64_t{130}}) {
        for (const Results results : {Results::kReduced, Results::kPerRoute, Results::kPerRank}) {
          Shape shape{};
          shape.experts = {9, ranks};
          shape.topk = topk;
          shape.max_tokens = 5;
          shape.replicas = replicas;
          shape.row_bytes = row_bytes;
          shape.scales_bytes = row_bytes == 130 ? 8 : 0;
          shape.result_bytes = 2 * row_bytes;
          shape.results = results;
          all.push_back(shape);
        }
      }
    }
  }
  return all;
}

// Marks bytes as used; a byte used twice, or outside, fails.
class Map {
 public:
  explicit Map(int64_t bytes) : used_(static_cast<size_t>(bytes)) {}
  void take(int64_t begin, int64_t bytes, int64_t alignment) {
    ASSERT_EQ(begin % alignment, 0);
    ASSERT_LE(begin + bytes, static_cast<int64_t>(used_.size()));
    for (int64_t i = begin; i < begin + bytes; ++i) {
      ASSERT_FALSE(used_[static_cast<size_t>(i)]) << "byte " << i << " twice";
      used_[static_cast<size_t>(i)] = true;
    }
  }
  int64_t num_used() const {
    int64_t n = 0;
    for (const bool used : used_) n += used;
    return n;
  }

 private:
  std::vector<bool> used_;
};

TEST(HeapLayout, RegionsDoNotOverlapAndFillTheHeap) {
  for (const Shape& shape : shapes()) {
    const HeapLayout layout{shape};
    Map map(layout.bytes());
    for (int32_t src = 0; src < shape.num_ranks(); ++src) map.take(layout.peer_word(src), 8, 8);
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      for (int32_t src = 0; src < shape.num_ranks(); ++src) {
        map.take(layout.counts(epoch, src), static_cast<int64_t>(sizeof(CountsHead)) + 8 * shape.experts.max_local(),
                 16);
        for (int64_t i = 0; i < shape.max_share(); ++i) map.take(layout.header(epoch, src, i), layout.header_bytes, 16);
      }
      for (int32_t group = 0; group < shape.num_groups(); ++group) {
        for (int64_t i = 0; i < shape.max_tokens; ++i) {
          map.take(layout.payload(epoch, group, i), shape.row_bytes, 16);
          if (shape.scales_bytes > 0)
            map.take(layout.payload(epoch, group, i) + shape.token().scales_offset(), shape.scales_bytes, 16);
          map.take(layout.payload_signal(epoch, group, i), 8, 8);
        }
      }
      for (int64_t token = 0; token < shape.max_tokens; ++token) {
        for (int32_t q = 0; q < shape.results_per_token(); ++q) {
          for (int64_t slice = 0; slice < layout.result_slices; ++slice)
            map.take(layout.result_signal(epoch, token, q, slice), 8, 8);
          map.take(layout.result(epoch, token, q), shape.result_bytes, 16);
        }
      }
    }
    // What is left is padding: to 16 bytes behind rows, to 32 behind results, to lines between regions.
    const int64_t num_units =
        kEpochs * (2 * shape.num_groups() * shape.max_tokens + shape.num_ranks() * shape.max_share() +
                   2 * shape.max_tokens * shape.results_per_token());
    EXPECT_LE(layout.bytes() - map.num_used(), 16 * num_units + kLine * (6 + 5 * kEpochs * shape.num_ranks()));
  }
}

TEST(WorkspaceLayout, RegionsDoNotOverlap) {
  for (const Shape& shape : shapes()) {
    const WorkspaceLayout layout{shape};
    Map map(layout.bytes());
    for (int team = 0; team < kMaxTeams; ++team) map.take(layout.epoch(team), 8, 8);
    map.take(layout.counters(), sizeof(Counters), 8);
    for (int r = 0; r < shape.num_ranks(); ++r) map.take(layout.peer_counters(r), sizeof(PeerCounters), 8);
    map.take(layout.one(), 4, 4);
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      map.take(layout.num_tokens(epoch), 4, 4);
      for (int64_t token = 0; token < shape.max_tokens; ++token)
        map.take(layout.topk_idx(epoch, token), 4 * shape.topk, 4);
      for (int64_t token = 0; token < shape.max_tokens; ++token)
        map.take(layout.own(epoch, token), static_cast<int64_t>(sizeof(OwnToken)), 8);
      for (int32_t src = 0; src < shape.num_ranks(); ++src) {
        map.take(layout.num_received(epoch, src), 4, 4);
        for (int64_t i = 0; i < shape.max_share(); ++i)
          map.take(layout.received(epoch, src, i), layout.received_bytes, 8);
      }
    }
  }
}

TEST(Replicas, ShareAGroupsTokensOutInTheirOrderToWithinOneToken) {
  for (const int32_t num : {1, 2, 3, 4, 7, 64}) {
    const Replicas replicas(num);
    for (const int32_t num_tokens : {0, 1, 2, 3, 6, 7, 8, 63, 64, 65, 1000, 2147483647}) {
      for (const int32_t group : {0, 1, 5}) {
        int32_t next = 0;
        for (int32_t member = 0; member < num; ++member) {
          const int32_t rank = group * num + member;
          ASSERT_EQ(replicas.group(rank), group);
          ASSERT_EQ(replicas.first_rank(rank), group * num);
          ASSERT_EQ(replicas.is_last(rank), member == num - 1);
          const TokenRange share = replicas.share(rank, num_tokens);
          ASSERT_EQ(share.begin, next);
          ASSERT_GE(share.size(), num_tokens / num);
          ASSERT_LE(share.size(), num_tokens / num + (num_tokens % num > 0 ? 1 : 0));
          next = share.end;
        }
        ASSERT_EQ(next, num_tokens) << num << " replicas";
      }
    }
  }
}

TEST(Owners, AgreeWithTheDivisionForManyExperts) {
  for (const Experts& experts :
       {Experts{1 << 30, 7}, Experts{2147483647, 3}, Experts{2147483646, 1}, Experts{65537, 65536}}) {
    const Owners owners(experts);
    for (int32_t rank = 0; rank < std::min(experts.num_ranks, 9); ++rank) {
      ASSERT_EQ(owners.first(rank), experts.first(rank));
      ASSERT_EQ(owners.count(rank), experts.count(rank));
      ASSERT_EQ(owners.max_local(), experts.max_local());
      const int32_t first = experts.first(rank), last = first + experts.count(rank) - 1;
      for (const int32_t e : {first, first + (last - first) / 2, last}) ASSERT_EQ(owners.of(e), experts.owner(e)) << e;
    }
    ASSERT_EQ(owners.of(experts.num_experts - 1), experts.num_ranks - 1);
  }
}

TEST(Header, KeepsARouteWhateverItsNumbersAre) {
  Shape shape{};
  shape.experts = {300, 2};
  shape.topk = 9;
  shape.max_tokens = 1 << 20;
  const RouteBits bits(shape);
  ASSERT_LE(RouteBits::needed(shape), 48);
  for (const uint64_t epoch : {uint64_t{1}, uint64_t{0xfffffffff}, ~uint64_t{0}}) {
    for (const Route& route :
         {Route{0, 0, 0, 0.0f}, Route{149, 8, 9 * (1u << 20) - 1, -1.5f}, Route{77, 3, 12345, 3e38f}}) {
      const exec::Unit unit = bits.pack(route, epoch);
      EXPECT_TRUE(exec::has_tag(unit, epoch));
      EXPECT_FALSE(exec::has_tag(unit, epoch - 2));
      const Route back = bits.unpack(unit);
      EXPECT_EQ(back.local_expert, route.local_expert);
      EXPECT_EQ(back.k, route.k);
      EXPECT_EQ(back.position, route.position);
      EXPECT_EQ(back.weight, route.weight);
    }
    const TokenHead head = TokenHead::unpack(TokenHead::pack({1 << 30, 65535, 65534}, epoch));
    EXPECT_EQ(head.token, 1 << 30);
    EXPECT_EQ(head.result_index, 65535);
    EXPECT_EQ(head.num_routes, 65534);
  }
}

TEST(HeapLayout, AResultSlotPerRankOrPerRouteButNotMore) {
  Shape shape{};
  shape.experts = {64, 16};
  shape.topk = 8;
  shape.results = Results::kReduced;
  EXPECT_EQ(shape.results_per_token(), 8);  // 16 ranks, but a token has at most 8 destinations.
  shape.experts.num_ranks = 4;
  EXPECT_EQ(shape.results_per_token(), 4);
  shape.results = Results::kPerRoute;
  EXPECT_EQ(shape.results_per_token(), 8);
}

}  // namespace
}  // namespace moeway::layout

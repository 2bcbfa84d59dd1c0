// Views of wider, longer, transposed or repeated memory are read as what they are.
#include <gtest/gtest.h>

#include <cstring>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

Case strided_case(const LayoutForm& layout) {
  Case job;
  job.shape.num_ranks = 2;
  job.shape.num_experts = 6;
  job.shape.topk = 3;
  job.shape.hidden = 21;
  job.shape.max_tokens = 7;
  layout.apply(job.shape);
  job.values = reference::Values::kArbitrary;
  job.routes = reference::Routes::kHoles;
  job.rounds = 1;
  job.seed = 91;
  return job;
}

// The elements of a dense matrix, laid out anew: element (i, j) at offset + i * row + j * column, filled up with values
// that would show.
template <class T>
struct Spread {
  Memory<T> memory;
  Tensor tensor;
  Spread(const Tensor& dense, int64_t offset, int64_t row, int64_t column, T filler) : tensor(dense) {
    const int64_t rows = dense.shape[0], columns = dense.shape[1];
    memory.assign(static_cast<size_t>(offset + rows * row + columns * column + 1), filler);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        std::memcpy(&memory[static_cast<size_t>(offset + i * row + j * column)],
                    static_cast<const T*>(dense.data) + i * dense.strides[0] + j * dense.strides[1], sizeof(T));
    tensor.data = memory.data() + offset;
    tensor = tensor.with_strides({row, column});
  }
};

struct View {
  const char* name;
  int64_t offset;
  int64_t row_times_columns, row_times_rows, row_plus;
  int64_t column_step;
  bool transposed;

  int64_t row(int64_t rows, int64_t columns) const {
    return row_times_columns * columns + row_times_rows * rows + row_plus;
  }
  int64_t column(int64_t rows) const { return transposed ? rows : column_step; }
};
constexpr View kViews[] = {{"columns of a wider tensor", 2, 1, 0, 9, 1, false},
                           {"every second row", 0, 2, 0, 0, 1, false},
                           {"transposed", 0, 0, 0, 1, 1, true},
                           {"every third element", 1, 3, 0, 2, 3, false}};

void run_view(const Case& job, const View& view) {
  const auto batches = make_batches(job);
  const bool passed = expect_runs(2, As::kThreads, [&](Rank& rank) {
    Job own(rank, job, batches);
    if (!own.create()) return;
    DispatchInput in = own.make_input(0);
    const int64_t tokens = in.x.shape[0];
    const auto spread = [&]<class T>(const moeway_tensor& tensor, T filler) {
      return Spread<T>(Tensor(tensor), view.offset, view.row(tokens, tensor.shape[1]), view.column(tokens), filler);
    };
    const Spread<uint16_t> x = spread(in.x, uint16_t{0x7fc1});
    const Spread<int64_t> ids = spread(in.topk_idx, int64_t{5});
    in.x = x.tensor;
    in.topk_idx = ids.tensor;
    const bool at_dispatch = job.shape.weights == reference::Weights::kAtDispatch;
    const Spread<float> weights = spread(at_dispatch ? in.topk_weights : own.combine_weights(0), 7.0f);
    if (at_dispatch) in.topk_weights = weights.tensor;
    if (!own.dispatch_with(0, in)) return;
    // y as rows of something wider.
    Memory<uint16_t> wide(static_cast<size_t>(tokens * 30 + 30), 0xffff);
    const Tensor y = place::here(Tensor(wide.data() + 4, kBf16, {tokens, 21})).with_strides({30, 1});
    if (!rank.expect_ok(own.combine_into(0, y, weights.tensor), "combine")) return;
    Memory<uint16_t> expected(wide.size(), 0xffff);
    const std::vector<std::byte> sums =
        expected_combine(job.shape, job.values, batches[0][static_cast<size_t>(rank.rank())]);
    for (int64_t t = 0; t < tokens; ++t)
      std::memcpy(&expected[static_cast<size_t>(4 + t * 30)], sums.data() + t * 42, 42);
    rank.expect(wide == expected, "y as a view of something wider");
  });
  ASSERT_TRUE(passed) << view.name << ", " << describe(job);
}

TEST(StridedTensors, AreReadAsTheViewsThatTheyAre) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const reference::Tokens tokens : {reference::Tokens::kFull, reference::Tokens::kSomeEmpty}) {
      for (const View& view : kViews) {
        Case job = strided_case(layout);
        job.tokens = tokens;
        run_view(job, view);
      }
    }
  }
}

// One row in memory, seen as many: stride 0.
TEST(StridedTensors, OneRowExpandedToMany) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job = strided_case(layout);
    const reference::Shape shape = job.shape;
    job.batch = [shape](int round) {
      reference::Batch batch =
          make_batch(shape, reference::Values::kArbitrary, reference::Routes::kUniform, {5, 7}, 92, round);
      const auto row = static_cast<size_t>(shape.row_bytes());
      for (reference::RankInput& input : batch)
        for (size_t at = row; at < input.x.size(); at += row) std::memcpy(&input.x[at], &input.x[0], row);
      return batch;
    };
    const auto batches = make_batches(job);
    const bool passed = expect_runs(2, As::kThreads, [&](Rank& rank) {
      Job own(rank, job, batches);
      if (!own.create()) return;
      DispatchInput in = own.make_input(0);
      in.x.strides[0] = 0;
      if (own.dispatch_with(0, in)) own.combine(0);
    });
    ASSERT_TRUE(passed) << describe(job);
  }
}

// The last row first in memory: a negative stride.
TEST(StridedTensors, RowsFromTheLastToTheFirst) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job = strided_case(layout);
    job.tokens = reference::Tokens::kFull;
    const auto batches = make_batches(job);
    const bool passed = expect_runs(2, As::kThreads, [&](Rank& rank) {
      Job own(rank, job, batches);
      if (!own.create()) return;
      DispatchInput in = own.make_input(0);
      const int64_t tokens = in.x.shape[0], columns = in.x.shape[1];
      Memory<uint16_t> flipped(static_cast<size_t>(tokens * columns));
      for (int64_t t = 0; t < tokens; ++t)
        std::memcpy(&flipped[static_cast<size_t>((tokens - 1 - t) * columns)],
                    static_cast<const uint16_t*>(in.x.data) + t * columns, static_cast<size_t>(columns) * 2);
      in.x.data = flipped.data() + (tokens - 1) * columns;
      in.x.strides[0] = -columns;
      if (own.dispatch_with(0, in)) own.combine(0);
    });
    ASSERT_TRUE(passed) << describe(job);
  }
}

// Strides of dimensions with fewer than two elements do not matter, whatever they are.
TEST(StridedTensors, OneTokenOrNoneWithAnyStridesIsDense) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const int64_t tokens : {0, 1}) {
      for (const int64_t stride : {int64_t{0}, int64_t{-5}, int64_t{1} << 62}) {
        Case job = strided_case(layout);
        const reference::Shape shape = job.shape;
        job.batch = [=](int round) {
          return make_batch(shape, reference::Values::kArbitrary, reference::Routes::kUniform, {tokens, tokens}, 93,
                            round);
        };
        const auto batches = make_batches(job);
        const bool passed = expect_runs(2, As::kThreads, [&](Rank& rank) {
          Job own(rank, job, batches);
          if (!own.create()) return;
          DispatchInput in = own.make_input(0);
          for (moeway_tensor* tensor : {&in.x, &in.topk_idx, &in.topk_weights}) tensor->strides[0] = stride;
          if (tokens == 0)
            for (moeway_tensor* tensor : {&in.x, &in.topk_idx, &in.topk_weights}) tensor->strides[1] = stride;
          if (!own.dispatch_with(0, in)) return;
          Memory<uint16_t> memory(static_cast<size_t>(tokens * 21) + 1, 0xffff);
          Tensor y = place::here(Tensor(memory.data(), kBf16, {tokens, 21}));
          y.strides[0] = stride;
          Tensor weights = own.combine_weights(0);
          weights.strides[0] = stride;
          rank.expect_ok(own.combine_into(0, y, weights), "combine");
          const std::vector<std::byte> sums =
              expected_combine(shape, job.values, batches[0][static_cast<size_t>(rank.rank())]);
          rank.expect(sums.empty() || std::memcmp(memory.data(), sums.data(), sums.size()) == 0, "y");
          rank.expect(memory.back() == 0xffff, "behind y");
        });
        ASSERT_TRUE(passed) << tokens << " tokens, stride " << stride;
      }
    }
  }
}

}  // namespace
}  // namespace moeway::multi_rank

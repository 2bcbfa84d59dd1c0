// What AllToAll refuses, before it touches any memory but its own.
#include "base/format.h"
#include "core/all_to_all.h"
#include "core/routes.h"
#include "core/tensors.h"

namespace moeway::core {

namespace {

const char* const kNoScales = "the config has no scales";
const char* const kQuantises = "the config says that dispatch makes them (quantise)";
const char* const kHasRows = "only layout token_major has it";
const char* const kTokenMajor = "layout token_major has one row per (source rank, token)";

// How many tokens a CPU rank gives.
int64_t tokens_of(const moeway_dispatch_input& input) {
  return input.num_tokens.ndim == 0 ? input.x.shape[0] : *static_cast<const int32_t*>(input.num_tokens.data);
}

}  // namespace

Status AllToAll::check_may_send() {
  if (Status s = status(); !s.ok()) return s;
  const RoundState& latest = rounds_[num_dispatches_ % layout::kEpochs];
  if (latest.dispatch == num_dispatches_ && latest.stage == Stage::kSent) {
    return error(MOEWAY_WRONG_STATE, "dispatch_send of round {} before dispatch_recv of round {}", num_dispatches_ + 1,
                 num_dispatches_);
  }
  const RoundState& before = rounds_[(num_dispatches_ + 1) % layout::kEpochs];
  if (before.stage == Stage::kResultsSent) {
    return error(MOEWAY_WRONG_STATE, "dispatch_send of round {} before combine_recv of round {}", num_dispatches_ + 1,
                 before.dispatch);
  }
  return {};
}

Result<AllToAll::RoundState*> AllToAll::find(moeway_routing routing) {
  if (Status s = status(); !s.ok()) return s;
  if (routing.object != id_) {
    return error(MOEWAY_WRONG_STATE,
                 "routing is of object {}, expected this object's {}: it comes from another AllToAll", routing.object,
                 id_);
  }
  RoundState& round = rounds_[routing.dispatch % layout::kEpochs];
  if (round.stage == Stage::kNone || round.dispatch != routing.dispatch) {
    return error(MOEWAY_WRONG_STATE,
                 "routing is of round {}, which is no longer kept: the latest is round {}, and only the latest {} are",
                 routing.dispatch, num_dispatches_, layout::kEpochs);
  }
  return &round;
}

Result<AllToAll::RoundState*> AllToAll::find_at(moeway_routing routing, Stage expected, const char* phase) {
  Result<RoundState*> found = find(routing);
  if (!found.ok() || found.value()->stage == expected) return found;
  static constexpr const char* kDone[] = {"nothing", "dispatch_send", "dispatch_recv", "combine_send", "combine_recv"};
  const RoundState& round = *found.value();
  return error(MOEWAY_WRONG_STATE, "{} of round {} comes after its {}, expected after its {}", phase, round.dispatch,
               kDone[static_cast<int>(round.stage)], kDone[static_cast<int>(expected)]);
}

Status AllToAll::on_my_device(std::initializer_list<NamedTensor> tensors) const {
  return check_devices(tensors, communicator_->device_type(), communicator_->device_index());
}

Status AllToAll::bad_num_tokens(const char* what, int32_t given, int64_t rows) const {
  return invalid_argument("{} is {}, expected 0 to {}, the rows of x (max_tokens is {})", what, given, rows,
                          plan_.config.max_tokens);
}

// x and scales.
Status AllToAll::check_payload(const moeway_dispatch_input& input) const {
  const moeway_all_to_all_config& config = plan_.config;
  const bool quantises = plan_.shape.quantises();
  const int64_t columns = plan_.shape.row_bytes / moeway_dtype_bytes(config.dispatch_dtype);
  const moeway_dtype dtype = quantises ? MOEWAY_BF16 : config.dispatch_dtype;
  if (Status s = check_tensor("x", input.x, dtype, {Dim::at_least(0), Dim::exactly(columns)}, Access::kRead); !s.ok())
    return s;
  const int64_t num_rows = input.x.shape[0];
  if (num_rows > config.max_tokens) {
    return invalid_argument("x.shape[0] is {}, expected at most max_tokens = {}", num_rows, config.max_tokens);
  }
  if (quantises || !plan_.has_scales()) {
    return check_absent("scales", input.scales, quantises ? kQuantises : kNoScales);
  }
  return check_tensor("scales", input.scales, plan_.scales_dtype(),
                      {Dim::exactly(num_rows), Dim::exactly(plan_.sizes.num_scales)}, Access::kRead);
}

Status AllToAll::check_routing(const moeway_dispatch_input& input) const {
  const std::initializer_list<Dim> routes{Dim::exactly(input.x.shape[0]), Dim::exactly(plan_.config.topk)};
  const moeway_dtype index = input.topk_idx.dtype == MOEWAY_I64 ? MOEWAY_I64 : MOEWAY_I32;
  if (input.topk_idx.ndim != 0 && input.topk_idx.dtype != index) {
    return invalid_argument("topk_idx.dtype is {}, expected i32 or i64", moeway_dtype_name(input.topk_idx.dtype));
  }
  if (Status s = check_tensor("topk_idx", input.topk_idx, index, routes, Access::kRead); !s.ok()) return s;
  return plan_.weights_at_dispatch()
             ? check_tensor("topk_weights", input.topk_weights, MOEWAY_F32, routes, Access::kRead)
             : check_absent("topk_weights", input.topk_weights, "the config gives weights at combine");
}

Status AllToAll::check_input(const moeway_dispatch_input& input) const {
  if (input.struct_size != sizeof(input)) {
    return invalid_argument("input.struct_size is {}, expected {}: fill it with moeway_dispatch_input_init",
                            input.struct_size, sizeof(input));
  }
  if (Status s = on_my_device({{"x", &input.x},
                               {"scales", &input.scales},
                               {"topk_idx", &input.topk_idx},
                               {"topk_weights", &input.topk_weights},
                               {"num_tokens", &input.num_tokens}});
      !s.ok()) {
    return s;
  }
  if (Status s = check_payload(input); !s.ok()) return s;
  if (Status s = check_routing(input); !s.ok()) return s;
  if (input.num_tokens.ndim != 0) {
    if (Status s = check_tensor("num_tokens", input.num_tokens, MOEWAY_I32, {Dim::exactly(1)}, Access::kRead); !s.ok())
      return s;
  }
  if (communicator_->on_device()) return {};  // The kernel looks: the host cannot read on without waiting.
  const int64_t num_tokens = tokens_of(input), num_rows = input.x.shape[0];
  if (num_tokens < 0 || num_tokens > num_rows) {
    return bad_num_tokens("num_tokens", static_cast<int32_t>(num_tokens), num_rows);
  }
  return check_routes({matrix_view(input.topk_idx)}, num_tokens, plan_.config.topk, plan_.config.num_experts,
                      plan_.config.distinct_experts != 0);
}

Status AllToAll::check_received_tensors(const moeway_dispatch_output& output) const {
  const int64_t columns = plan_.shape.row_bytes / moeway_dtype_bytes(plan_.config.dispatch_dtype);
  const int64_t num_local = plan_.sizes.num_local_experts;
  const auto check = [&](const char* name, const moeway_tensor& tensor, moeway_dtype dtype, int64_t last) {
    if (plan_.config.layout == MOEWAY_EXPERT_PADDED) {
      return check_tensor(name, tensor, dtype,
                          {Dim::exactly(num_local), Dim::at_least(plan_.sizes.expert_capacity), Dim::exactly(last)},
                          Access::kWrite);
    }
    if (plan_.config.layout == MOEWAY_EXPERT_PACKED) {
      return check_tensor(name, tensor, dtype, {Dim::at_least(plan_.sizes.max_rows), Dim::exactly(last)},
                          Access::kWrite);
    }
    return check_tensor(name, tensor, dtype, {Dim::exactly(plan_.sizes.max_rows), Dim::exactly(last)}, Access::kWrite);
  };
  const bool in_heap = plan_.token_major() && output.x.ndim == 0;
  if (!in_heap) {
    if (Status s = check("x", output.x, plan_.config.dispatch_dtype, columns); !s.ok()) return s;
  }
  if (!plan_.has_scales() || in_heap) {
    if (Status s =
            check_absent("scales", output.scales, in_heap ? "x is not given, so both stay in the heap" : kNoScales);
        !s.ok())
      return s;
  } else if (Status s = check("scales", output.scales, plan_.scales_dtype(), plan_.sizes.num_scales); !s.ok()) {
    return s;
  }
  if (plan_.token_major() || !plan_.weights_at_dispatch()) {
    const char* why = plan_.token_major() ? kTokenMajor : "the config gives weights at combine";
    if (Status s = check_absent("row_weight", output.row_weight, why); !s.ok()) return s;
  } else if (output.row_weight.ndim != 0) {
    if (Status s = check("row_weight", output.row_weight, MOEWAY_F32, 1); !s.ok()) return s;
  }
  if (plan_.token_major()) return check_absent("row_source", output.row_source, kTokenMajor);
  if (output.row_source.ndim == 0) return {};
  return check("row_source", output.row_source, MOEWAY_I32, 3);
}

Status AllToAll::check_output(const moeway_dispatch_output& output) const {
  if (output.struct_size != sizeof(output)) {
    return invalid_argument("output.struct_size is {}, expected {}: fill it with moeway_dispatch_output_init",
                            output.struct_size, sizeof(output));
  }
  if (Status s = on_my_device({{"x", &output.x},
                               {"scales", &output.scales},
                               {"num_rows", &output.num_rows},
                               {"first_row", &output.first_row},
                               {"row_source", &output.row_source},
                               {"row_weight", &output.row_weight},
                               {"topk_idx", &output.topk_idx},
                               {"topk_weights", &output.topk_weights},
                               {"num_dropped", &output.num_dropped}});
      !s.ok()) {
    return s;
  }
  if (Status s = check_received_tensors(output); !s.ok()) return s;
  const std::initializer_list<Dim> experts{Dim::exactly(plan_.sizes.num_local_experts)};
  if (Status s = check_tensor("num_rows", output.num_rows, MOEWAY_I32, experts, Access::kScatter); !s.ok()) return s;
  if (output.num_dropped.ndim != 0) {
    if (Status s = check_tensor("num_dropped", output.num_dropped, MOEWAY_I32, experts, Access::kScatter); !s.ok())
      return s;
  }
  if (plan_.token_major()) {
    if (Status s = check_absent("first_row", output.first_row, kTokenMajor); !s.ok()) return s;
    const std::initializer_list<Dim> routes{Dim::exactly(plan_.sizes.max_rows), Dim::exactly(plan_.config.topk)};
    if (Status s = check_tensor("topk_idx", output.topk_idx, MOEWAY_I32, routes, Access::kWrite); !s.ok()) return s;
    return check_tensor("topk_weights", output.topk_weights, MOEWAY_F32, routes, Access::kWrite);
  }
  if (output.first_row.ndim != 0) {
    if (Status s = check_tensor("first_row", output.first_row, MOEWAY_I64, experts, Access::kScatter); !s.ok())
      return s;
  }
  if (Status s = check_absent("topk_idx", output.topk_idx, kHasRows); !s.ok()) return s;
  return check_absent("topk_weights", output.topk_weights, kHasRows);
}

Status AllToAll::check_rows(moeway_routing routing, const moeway_tensor& rows) const {
  if (routing.unweighted != 0 && routing.unweighted != 1) {
    return invalid_argument("routing.unweighted is {}, expected 0 or 1", routing.unweighted);
  }
  if (Status s = on_my_device({{"rows", &rows}}); !s.ok()) return s;
  const Dim hidden = Dim::exactly(plan_.config.hidden);
  switch (plan_.config.layout) {
    case MOEWAY_EXPERT_PADDED:
      return check_tensor(
          "rows", rows, plan_.config.row_dtype,
          {Dim::exactly(plan_.sizes.num_local_experts), Dim::at_least(plan_.sizes.expert_capacity), hidden},
          Access::kReadRows);
    case MOEWAY_EXPERT_PACKED:
      return check_tensor("rows", rows, plan_.config.row_dtype, {Dim::at_least(plan_.sizes.max_rows), hidden},
                          Access::kReadRows);
    case MOEWAY_TOKEN_MAJOR:
      break;
  }
  return check_tensor("rows", rows, plan_.config.row_dtype, {Dim::exactly(plan_.sizes.max_rows), hidden},
                      Access::kReadRows);
}

Status AllToAll::check_results(moeway_routing routing, const RoundState& round, const moeway_tensor* topk_weights,
                               const moeway_tensor& y) const {
  if (round.stage == Stage::kResultsSent && routing.unweighted != round.unweighted) {
    return invalid_argument("routing.unweighted is {}, expected {} as in combine_send", routing.unweighted,
                            round.unweighted);
  }
  if (Status s = on_my_device({{"y", &y}}); !s.ok()) return s;
  if (topk_weights != nullptr) {
    if (Status s = on_my_device({{"topk_weights", topk_weights}}); !s.ok()) return s;
  }
  const Dim num_tokens = Dim::exactly(round.num_tokens);
  if (plan_.weights_at_dispatch() || routing.unweighted != 0) {
    if (topk_weights != nullptr) {
      return invalid_argument("topk_weights is given, expected none: {}", plan_.weights_at_dispatch()
                                                                              ? "the config gives weights at dispatch"
                                                                              : "routing.unweighted is set");
    }
  } else {
    if (topk_weights == nullptr)
      return invalid_argument("topk_weights is null, expected a tensor: the config gives weights at combine");
    if (Status s = check_tensor("topk_weights", *topk_weights, MOEWAY_F32,
                                {num_tokens, Dim::exactly(plan_.config.topk)}, Access::kRead);
        !s.ok()) {
      return s;
    }
  }
  return check_tensor("y", y, plan_.config.output_dtype, {num_tokens, Dim::exactly(plan_.config.hidden)},
                      Access::kWrite);
}

void AllToAll::fill_input(const moeway_dispatch_input& input, kernels::direct::DispatchArgs* args) {
  // A CPU rank's number has been looked at, and is not read again.
  const bool later = communicator_->on_device() && input.num_tokens.ndim != 0;
  args->num_tokens = static_cast<int32_t>(later ? input.x.shape[0] : tokens_of(input));
  args->num_tokens_at = later ? static_cast<const int32_t*>(input.num_tokens.data) : nullptr;
  args->x = matrix_view(input.x);
  args->scales = matrix_view(input.scales);
  args->topk_idx = {matrix_view(input.topk_idx)};
  args->topk_weights = matrix_view(input.topk_weights);
  args->mistakes = executor_->mistakes();
}

void AllToAll::fill_output(const moeway_dispatch_output& output, kernels::direct::DispatchArgs* args) {
  args->out = rows_view(output.x);
  args->out_scales = rows_view(output.scales);
  args->row_source = rows_view(output.row_source);
  args->row_weight = rows_view(output.row_weight);
  args->num_rows = static_cast<int32_t*>(output.num_rows.data);
  args->num_rows_stride = stride_of(output.num_rows);
  args->first_row = output.first_row.ndim == 0 ? nullptr : static_cast<int64_t*>(output.first_row.data);
  args->first_row_stride = stride_of(output.first_row);
  args->num_dropped = output.num_dropped.ndim == 0 ? nullptr : static_cast<int32_t*>(output.num_dropped.data);
  args->num_dropped_stride = stride_of(output.num_dropped);
  // Rows of x as [rows, H]: the distance between experts is the tensor's own capacity, which may exceed the one that is
  // needed.
  args->expert_capacity = plan_.config.layout == MOEWAY_EXPERT_PADDED ? output.x.shape[1] : 0;
  args->alignment = plan_.config.alignment;
  args->max_expert_rows = static_cast<uint32_t>(plan_.sizes.expert_capacity);
  args->max_rows = plan_.sizes.max_rows;
  args->drops = plan_.drops();
  args->out_topk_idx = matrix_view(output.topk_idx);
  args->out_topk_weights = matrix_view(output.topk_weights);
}

Status AllToAll::dispatch_view(moeway_routing routing, moeway_tensor* x, moeway_tensor* scales) {
  Result<RoundState*> found = find(routing);
  if (!found.ok()) return found.status();
  const RoundState& round = *found.value();
  if (!round.in_heap || round.stage == Stage::kSent || round.dispatch != num_dispatches_) {
    return error(MOEWAY_WRONG_STATE,
                 "dispatch_view of round {}, expected the latest round (now {}), after a dispatch_recv that was given "
                 "no output.x",
                 round.dispatch, num_dispatches_);
  }
  const layout::HeapLayout layout{plan_.shape};
  std::byte* payload =
      heap_->base(communicator_->rank()) + layout.payload(kernels::direct::parity_of(round.dispatch), 0, 0);
  const auto view = [&](std::byte* data, moeway_dtype dtype, int64_t columns) {
    const int64_t element = moeway_dtype_bytes(dtype);
    return moeway_tensor{data,
                         dtype,
                         communicator_->device_type(),
                         communicator_->device_index(),
                         2,
                         {plan_.sizes.max_rows, columns, 0},
                         {layout.payload_bytes / element, 1, 0}};
  };
  *x = view(payload, plan_.config.dispatch_dtype,
            plan_.shape.row_bytes / moeway_dtype_bytes(plan_.config.dispatch_dtype));
  if (scales != nullptr) *scales = {};
  if (scales != nullptr && plan_.has_scales())
    *scales = view(payload + plan_.shape.token().scales_offset(), plan_.scales_dtype(), plan_.sizes.num_scales);
  return {};
}

}  // namespace moeway::core

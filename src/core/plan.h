// From a caller's config to what the kernels need: checked once, at creation.
#pragma once

#include <moeway/c_api.h>
#include <moeway/status.h>

#include <cstdint>

#include "launch/choices.h"
#include "layout/shape.h"

namespace moeway::core {

struct Plan {
  moeway_all_to_all_config config;
  layout::Shape shape;
  launch::Element row_element;
  launch::Element output_element;
  moeway_all_to_all_sizes sizes;  // For one rank.

  bool drops() const { return config.overflow == MOEWAY_OVERFLOW_DROP; }
  bool has_scales() const { return shape.scales_bytes > 0; }
  bool token_major() const { return config.layout == MOEWAY_TOKEN_MAJOR; }
  bool weights_at_dispatch() const { return config.weights == MOEWAY_WEIGHTS_AT_DISPATCH; }
  // Element type of the scales' tensors.
  moeway_dtype scales_dtype() const;
};

// Checks every field, its relation to the others and all sizes. Nothing is allocated. Slots tell by themselves that they
// have come if `self_validating` is set and their type has no value that is taken for none; sizes do not depend on it.
Result<Plan> make_plan(const moeway_all_to_all_config& config, int32_t rank, int32_t num_ranks,
                       bool self_validating = false);

// Names for messages, as the enumerators are called.
const char* layout_name(moeway_layout layout);
const char* scales_name(moeway_scales scales);
const char* quantise_name(moeway_quantise quantise);
const char* overflow_name(moeway_overflow overflow);

}  // namespace moeway::core

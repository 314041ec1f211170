// Shows a batch as text, as the model sees it, with boundaries and masks marked, to find formatting errors.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "data/batch.h"
#include "data/sampler.h"

namespace ingot::data {

/// The text of tokens; pieces that are not UTF-8 by themselves may become any readable text.
using Decode = std::function<std::string(std::span<const int32_t>)>;

/// Row by row: where it came from, then each piece with its document number and positions. Tokens whose
/// target is masked stand in [[ ]], padding is counted, not printed. `source_names` by RowOrigin::source.
std::string describe(const Batch& batch, std::span<const std::string> source_names, const Decode& decode);

}  // namespace ingot::data

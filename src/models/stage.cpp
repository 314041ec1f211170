// See stage.h.
#include "models/stage.h"

#include "models/stage_boundary.h"

namespace ingot {

StageParts whole_model(const ModelConfig& config) {
  return {.embedding = true, .layers = config.layers, .modules = config.mtp.modules(), .loss = true};
}

StageForward::StageForward(const Decoder& decoder, const StageParts& parts, Context& c, const Value& ids_T,
                           const std::vector<Value>& received)
    : decoder_(decoder), parts_(parts), c_(c), depths_(predicted_depths(decoder.config(), c.tape.options())) {
  if (parts.embedding)
    stream_ = decoder.embed(c, ids_T);
  else
    stream_ = decoder.boundaries(c.precision(), depths_).at(position_before(parts)).resume(received, ids_T);
  decoder.blocks(c, stream_, parts.first_layer, parts.first_layer + parts.layers, balance_);
}

int64_t StageForward::module_of(int64_t depth) const {
  return decoder_.config().mtp.shared ? 0 : depth - 1;
}

bool StageForward::has_depth(int64_t depth) const {
  if (depth == 0) return parts_.first_module == 0 && (parts_.modules > 0 || parts_.loss);
  const int64_t module = module_of(depth);
  return parts_.first_module <= module && module < parts_.first_module + parts_.modules;
}

Value StageForward::head_input(int64_t depth, const Tensor& shifted_ids) {
  if (!has_depth(depth)) {
    if (!parts_.loss) return {};
    c_.tape.begin_segment("head",
                          static_cast<int>(depth == 0 ? -1 : decoder_.config().layers + module_of(depth)));
  } else if (depth == 0) {
    decoder_.finish(c_, stream_);
  } else {
    decoder_.predict_ahead(c_, stream_, c_.tape.leaf(shifted_ids), balance_);
  }
  return parts_.loss ? std::move(stream_.hidden_TD[static_cast<size_t>(depth)]) : Value();
}

std::vector<Value> StageForward::live_values() const {
  return decoder_.boundaries(c_.precision(), depths_).at(position_after(parts_)).live_values(stream_);
}

DecoderOutput Decoder::forward(Context& c, const Value& ids_T) const {
  StageForward stage(*this, whole_model(config_), c, ids_T);
  Value hidden_TD = stage.head_input(0);
  return {std::move(hidden_TD), std::move(stage.balance_losses())};
}

}  // namespace ingot

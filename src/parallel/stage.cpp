// See stage.h.
#include "parallel/stage.h"

#include "base/error.h"

namespace ingot {
namespace {

/// Modules of multi-token prediction run in training only.
int64_t depths_of(const ModelConfig& model, const TapeOptions& tape) {
  return tape.record ? model.mtp.depths : 0;
}

/// Which module computes a depth from 1 on.
int64_t module_of(const MtpConfig& mtp, int64_t depth) {
  return mtp.shared ? 0 : depth - 1;
}

/// Whether a stage computes the hidden states that predict `depth` tokens further on than the next.
bool computes(const StageParts& parts, const MtpConfig& mtp, int64_t depth) {
  if (depth == 0) return parts.first_module == 0 && (parts.modules > 0 || parts.loss);
  const int64_t module = module_of(mtp, depth);
  return parts.first_module <= module && module < parts.first_module + parts.modules;
}

}  // namespace

Value StageStep::ids_ahead_T(int64_t depth) {
  INGOT_CHECK(false, "nothing is predicted {} tokens ahead", depth);
  return {};
}

Cut cut_before(const StageParts& parts, const ModelConfig& model, const TapeOptions& tape) {
  return {parts.first_layer, parts.first_module, depths_of(model, tape)};
}

Cut cut_behind(const StageParts& parts, const ModelConfig& model, const TapeOptions& tape) {
  return {parts.first_layer + parts.layers, parts.first_module + parts.modules, depths_of(model, tape)};
}

Stream run_stage(const Decoder& decoder, const StageParts& parts, const std::vector<Value>& received,
                 StageStep& step) {
  Context& c = step.context();
  const ModelConfig& model = decoder.config();
  const TapeOptions& tape = c.tape.options();
  std::vector<BalanceLosses> balance;
  Stream s = parts.embedding ? decoder.embed(c, step.ids_T())
                             : decoder.resume(received, cut_before(parts, model, tape), step.ids_T());
  decoder.blocks(c, s, parts.first_layer, parts.first_layer + parts.layers, balance);
  for (int64_t depth = 0; depth <= depths_of(model, tape); ++depth) {
    if (!computes(parts, model.mtp, depth)) {
      if (!parts.loss) continue;
      c.tape.begin_segment("head",
                           static_cast<int>(depth == 0 ? -1 : model.layers + module_of(model.mtp, depth)));
    } else if (depth == 0) {
      decoder.finish(c, s);
    } else {
      decoder.predict_ahead(c, s, step.ids_ahead_T(depth), balance);
    }
    if (parts.loss) step.predict(depth, std::move(s.hidden_TD[static_cast<size_t>(depth)]));
  }
  step.losses(balance);
  return s;
}

void run_model(const Decoder& decoder, StageStep& step) {
  const ModelConfig& m = decoder.config();
  run_stage(decoder, even_pipeline_layout(1, 1, m.layers, m.mtp.modules()).stages.front(), {}, step);
}

}  // namespace ingot

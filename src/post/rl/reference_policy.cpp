// See reference_policy.h.
#include "post/rl/reference_policy.h"

#include <cstring>

#include "base/error.h"
#include "checkpoint/model_state.h"
#include "report/run_record.h"

namespace ingot {
namespace {

std::unique_ptr<Model> another(const Model& model) {
  return std::make_unique<Model>(model.config(), model.weights().precision(), model.weights().placement());
}

void copy_values(const Tensor& from, const Tensor& to) {
  std::memcpy(to.data, from.data, static_cast<size_t>(from.numel() * size_of(from.dtype())));
}

/// The checkpoint of a step, which runs keep where a phase ends.
CheckpointReader checkpoint_at(const SourceContext& context, int64_t step) {
  const std::string folder = context.recipe().run.folder + "/" + run_files::kCheckpoints;
  for (const CheckpointPlace& c : list_checkpoints(context.fs, folder))
    if (c.step == step) return CheckpointReader::open(context.fs, c.path);
  throw Error(
      fmt::format("rl.kl_reference: the reference of phase '{}' is the model of step {}, and '{}' has no "
                  "checkpoint of it any more",
                  context.config().name, step, folder),
      "copy it back; or set rl.kl_reference = 0");
}

}  // namespace

ReferencePolicy::ReferencePolicy(const TrainEngine& engine) : model_(another(engine.model())) {
  const Model& now = engine.model();
  for (int i = 0; i < now.weights().size(); ++i)
    copy_values(now.weights().master(i), model_->weights().master(i));
  for (const int64_t layer : now.decoder().moe_layers())
    copy_values(now.router_bias(layer), model_->router_bias(layer));
  model_->weights().refresh_compute();
}

ReferencePolicy::ReferencePolicy(const SourceContext& context, int64_t begun)
    : model_(another(context.engine.model())) {
  if (begun == 0)
    load_first_weights(context.fs, context.recipe(), context.data.tokenizer.content_hash(), *model_);
  else
    load_model(checkpoint_at(context, begun), *model_);
}

std::vector<float> ReferencePolicy::logprobs(const TrainEngine& engine, size_t phase, int64_t done,
                                             const data::Batch& batch, float logit_scale) const {
  model_->set_rope_theta(engine.recipe().rope_theta_of(phase));
  model_->set_window(engine.recipe().window_at(phase, done));
  constexpr int64_t kForwardRows = 1;
  return ingot::logprobs(*model_, engine.step_ranks(), batch, kForwardRows, logit_scale);
}

}  // namespace ingot

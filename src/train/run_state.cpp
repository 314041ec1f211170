// See run_state.h.
#include "train/run_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "checkpoint/model_state.h"
#include "checkpoint/parameter_part.h"
#include "train/branch.h"
#include "train/phase_kind.h"
#include "train/resume_check.h"

namespace ingot {
namespace {

/// The line is saved as text: an object would lose the order of its names.
MetricRow unmeasured_row(const CheckpointReader& reader) {
  const auto line = nlohmann::json::parse(reader.blob("unmeasured"), nullptr, false);
  if (!line.is_string()) fail("'{}': the state 'unmeasured' is damaged", reader.path());
  return parse_metric_row(line.get<std::string>(), reader.path());
}

}  // namespace

RunState::RunState(FileSystem& fs, TrainEngine& engine, const PreparedData& data)
    : fs_(fs),
      engine_(engine),
      data_(data),
      watch_({engine.recipe().health.spike_sigma, engine.recipe().health.spike_patience,
              engine.recipe().health.dead_patience}) {}

void RunState::begin() {
  if (!engine_.recipe().run.branch_from.empty()) return branch();
  engine_.load_start(fs_, data_.tokenizer.content_hash());
  sampler_.emplace(engine_.recipe(), data_);
  set_position();
}

void RunState::branch() {
  const StoredModel trunk = open_trunk(fs_, engine_.recipe(), data_.tokenizer.content_hash());
  load_model(trunk.reader, engine_.model());
  restore_trunk_optimizer(trunk, engine_);
  watch_.restore(trunk.reader.blob("watch"));
  const SavedRun saved = SavedRun::of(trunk.reader);
  step_ = saved.step;
  tokens_ = saved.tokens;
  sampler_.emplace(PhaseSampler::branch(engine_.recipe(), data_, trunk.reader));
  set_position();
  if (engine_.ranks().leads()) log::info("branching from '{}', step {}", trunk.reader.path(), step_);
}

void RunState::restore(const CheckpointReader& reader) {
  load_model(reader, engine_.model());
  const WeightSet& weights = engine_.model().weights();
  engine_.visit_parameter_state([&](const TrainEngine::ParameterState& s) {
    read_part(reader, s.name, {weights.table()[s.parameter], weights.placement(), s.values, s.begin});
  });
  engine_.visit_common_state([&](const std::string& name, const Tensor& t) { reader.read(name, t); });
  watch_.restore(reader.blob("watch"));
  const SavedRun saved = SavedRun::of(reader);
  step_ = saved.step;
  tokens_ = saved.tokens;
  rewound_ = saved.rewound;
  sampler_.emplace(engine_.recipe(), data_, reader);
  if (reader.manifest().blobs.contains("source")) saved_source_ = reader.blob("source");
  saved_where_ = reader.path();
  if (reader.manifest().blobs.contains("unmeasured")) unmeasured_ = unmeasured_row(reader);
  set_position();
}

BatchSource& RunState::source() {
  if (source_) return *source_;
  const PhaseKind& kind = kind_of(phase());
  if (kind.source)
    source_ = kind.source({fs_, engine_, data_, *sampler_});
  else
    source_ = std::make_unique<SampledSource>(*sampler_);
  if (!saved_source_.empty()) source_->restore(std::exchange(saved_source_, {}), saved_where_);
  return *source_;
}

void RunState::rewind(int64_t batches) {
  unmeasured_.reset();
  enter_next_phase();  // where the checkpoint is a phase's last, the batches are the next phase's
  if (batches > 0 && kind_of(phase()).source)
    throw Error(
        fmt::format("--skip-batches: phase '{}' is of kind {}, whose batches are made for their steps",
                    phase().name, phase().kind),
        "go back without it, and change a setting such as the learning rate");
  sampler_->skip(step_, batches);
  rewound_.push_back({step_, batches});
}

SaveRequest RunState::save_request(const std::string& protection) {
  SaveRequest request;
  request.step = step_;
  request.protection = protection;
  request.keep_before = watch_.first_spike();
  Model& model = engine_.model();
  const WeightSet& weights = model.weights();
  // `values`: elements of the parameter from `begin` on.
  const auto add = [&](const std::string& name, TensorKind kind, int parameter, const Tensor& values,
                       int64_t begin) {
    const ElementRange owned = engine_.owned(parameter);
    if (owned.empty()) return;
    const Tensor part(static_cast<std::byte*>(values.data) + (owned.begin - begin) * size_of(values.dtype()),
                      {owned.count()}, values.dtype());
    add_part(request.pieces, name, kind,
             {weights.table()[parameter], weights.placement(), part, owned.begin});
  };
  for (int i = 0; i < weights.size(); ++i)
    add(weights.table()[i].name, TensorKind::weight, i, weights.master(i), 0);
  engine_.visit_parameter_state([&](const TrainEngine::ParameterState& s) {
    add(s.name, TensorKind::optimizer, s.parameter, s.values, s.begin);
  });
  if (engine_.ranks().leads()) {
    engine_.visit_common_state([&](const std::string& name, const Tensor& t) {
      request.pieces.push_back(Piece::whole(name, TensorKind::optimizer, t));
    });
    for (Piece& p : bias_pieces(model)) request.pieces.push_back(std::move(p));
  }
  request.blobs["sampler"] = data::to_json(sampler_->state());
  request.blobs["model"] = config_blob(print_config(model.config()));
  request.blobs["recipe"] = config_blob(print_config(engine_.recipe()));
  request.blobs["watch"] = watch_.json();
  if (const std::string source = source_ ? source_->state() : saved_source_; !source.empty())
    request.blobs["source"] = source;
  if (unmeasured_) request.blobs["unmeasured"] = nlohmann::json(to_json_line(*unmeasured_)).dump();
  request.blobs["trainer"] = SavedRun{step_,
                                      tokens_,
                                      sampler_->phase(),
                                      data_.tokenizer.content_hash(),
                                      kernel_set_of(engine_.recipe()),
                                      sampler_->progress(),
                                      rewound_}
                                 .json();
  return request;
}

double RunState::learning_rate() const {
  return engine_.recipe().learning_rate(sampler_->phase(), step_ - sampler_->first_step()) *
         phase().rate_factor(sampler_->level());
}

bool has_comparable_losses(const PhaseConfig& a, const PhaseConfig& b) {
  const auto same = [](const SourceWeight& x, const SourceWeight& y) {
    return x.source == y.source && x.weight == y.weight;
  };
  return a.kind == b.kind && a.objective == b.objective && a.z_coefficient == b.z_coefficient &&
         std::equal(a.weights.begin(), a.weights.end(), b.weights.begin(), b.weights.end(), same);
}

bool RunState::enter_next_phase() {
  if (step_ < sampler_->end_step()) return false;
  source_.reset();
  saved_source_.clear();
  const PhaseConfig before = phase();
  sampler_->advance();
  if (!has_comparable_losses(before, phase())) watch_.forget();
  set_position();
  if (phase().optimizer.state == PhaseOptimizerState::reset) engine_.reset_optimizer();
  return true;
}

bool RunState::change_batch() {
  if (!sampler_->change_due()) return false;
  if (source_ != nullptr) saved_source_ = source_->state();
  source_.reset();
  sampler_->change_batch(step_);
  return true;
}

void RunState::count_step(const data::Batch& batch, double loss) {
  ++step_;
  tokens_ += batch.rows * batch.sequence_length;
  set_position();
  sampler_->count_step(loss);
}

void RunState::hold_window(int64_t tokens) {
  held_window_ = tokens;
  set_position();
}

void RunState::set_position() {
  engine_.enter(sampler_->phase(), step_ - sampler_->first_step());
  if (held_window_) engine_.model().set_window(*held_window_);
}

}  // namespace ingot

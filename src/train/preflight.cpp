// See preflight.h.
#include "train/preflight.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "base/build_info.h"
#include "base/parallel.h"
#include "base/process_memory.h"
#include "base/progress.h"
#include "comm/recording.h"
#include "data/dataset.h"
#include "data/mixture.h"
#include "device/machine/peak.h"
#include "eval/engine_model.h"
#include "optim/update_cost.h"
#include "train/memory_policy.h"
#include "train/phase_sampler.h"
#include "train/rank_check.h"
#include "train/run_layout.h"

namespace ingot {
namespace {

/// A forward pass numbers its tokens with 32 bits, and a plan takes a few bytes for each.
void require_countable(const PhaseConfig& phase, int64_t micro_batch) {
  constexpr int64_t kMost = int64_t{1} << 26;
  if (micro_batch * phase.sequence > kMost)
    throw Error(fmt::format("phase '{}': a forward pass of {} sequences of {} tokens has more than {} tokens",
                            phase.name, micro_batch, phase.sequence, group_digits(kMost)),
                "set micro_batch of the phase to a smaller divisor of its batch, or choose a smaller batch");
}

/// Positions that a phase trains on; of a kind that plans its rows itself, those of its full rows.
int64_t planned_tokens(const Recipe& recipe, const PhaseConfig& phase) {
  if (!kind_of(phase).rows) return phase.tokens();
  return phase.steps * planned_rows(phase, 0, recipe.data_ranks()) * phase.sequence;
}

/// `recipe`: the engine's, or a variant of it with other micro-batches.
PhasePlan plan_phase(const Recipe& recipe, const TrainEngine& engine, const PhaseConfig& phase,
                     const SlotPolicy* policy, double gflops, double read_gbs) {
  const StepRanks ranks = engine.step_ranks();
  PhasePlan p;
  p.name = phase.name;
  p.tokens = planned_tokens(recipe, phase);
  if (const PhaseKind& kind = kind_of(phase); kind.source_cost)
    p.source = kind.source_cost(engine.model(), phase);
  const UpdateCost update = update_cost(engine.optimizer());
  p.optimizer_flops = update.flops;
  const auto ranks_of_data = static_cast<double>(recipe.data_ranks());
  const std::vector<int64_t> steps = phase.planned_steps();
  for (int64_t level = 0; level < phase.levels(); ++level) {
    LevelPlan l{.batch = planned_rows(phase, level, recipe.data_ranks()),
                .micro_batch = micro_rows(phase, level, recipe.data_ranks()),
                .steps = steps[static_cast<size_t>(level)]};
    require_countable(phase, l.micro_batch);
    StepOptions o = step_options(recipe, engine.model(), phase, l.micro_batch);
    o.policy = policy;
    p.head = o.head;
    const int64_t count = l.batch / (l.micro_batch * recipe.data_ranks());
    const bool same = !p.levels.empty() && p.levels.back().micro_batch == l.micro_batch &&
                      (ranks.pipe == nullptr || p.levels.back().micro.micro_batches == count);
    l.micro = same ? p.levels.back().micro
                   : plan_step(engine.model(), o, l.micro_batch, phase.sequence, ranks, count);
    l.step_flops = l.micro.flops() * static_cast<double>(count / l.micro.micro_batches);
    if (gflops > 0 && read_gbs > 0)
      l.roofline_seconds =
          (l.step_flops + p.source.flops / ranks_of_data + p.optimizer_flops) / (gflops * 1e9) +
          update.bytes / (read_gbs * 1e9);
    p.levels.push_back(std::move(l));
  }
  return p;
}

/// The size of the vocabulary that preparing the data will make.
int64_t planned_vocabulary(const Recipe& recipe) {
  if (!recipe.tokenizer.path.empty()) return Tokenizer::load(recipe.tokenizer.path).vocab_size();
  if (recipe.tokenizer.kind == TokenizerKind::bpe) return recipe.tokenizer.vocab;
  throw Error(
      "a plan needs the size of the vocabulary, and the text, whose characters it counts, is not read yet",
      "add --model.vocab=N, e.g. 65 for English characters; or start the run, which prepares the data");
}

/// The phases and the memory of a run under a policy.
void plan_phases(const Recipe& recipe, const TrainEngine& engine, Preflight& f) {
  const NamedPolicy policy(f.recompute, f.offload, f.fp8);
  int64_t peak = 0, gathered = 0;
  f.phases.clear();
  f.source_bytes = f.task_bytes = 0;
  const bool on_rank = engine.ranks().groups().tensor().size() * engine.pipeline().stages() == 1;
  f.roofline_seconds = 0;
  for (const PhaseConfig& s : recipe.phases) {
    f.phases.push_back(plan_phase(recipe, engine, s, &policy, f.peak_gflops, f.read_gbs));
    int64_t slab = 0;
    for (const LevelPlan& l : f.phases.back().levels) {
      slab = std::max(slab, l.micro.memory.slab_bytes);
      gathered = std::max(gathered, l.micro.gathered_weight_bytes);
      f.roofline_seconds += l.roofline_seconds * static_cast<double>(l.steps);
    }
    // A batch is made, and tasks are done, while the memory of the step before is kept; the end of a phase
    // frees it.
    const bool has_tasks = !recipe.evaluation.tasks.empty() || !s.tasks.empty() || !s.gate.empty();
    const int64_t source = f.phases.back().source.bytes,
                  tasks = has_tasks && on_rank ? engine_model_bytes(engine.model()) : 0;
    if (slab + source + tasks > peak)
      peak = slab + source + tasks, f.source_bytes = source, f.task_bytes = tasks;
  }
  const bool split = engine.step_ranks().schedule == PipelineScheduleKind::zero_bubble;
  f.transient_bytes = engine.gradients().transient_bytes(split) + gathered;
  f.predicted_bytes = f.weight_bytes + f.gradient_bytes + f.transient_bytes + f.optimizer_bytes +
                      f.scratch_bytes + f.snapshot_bytes + peak;
}

/// Adds policy levels until the run fits `limit`, or none is left.
void fit_memory(const Recipe& recipe, const TrainEngine& engine, int64_t limit, Preflight& f) {
  for (const PolicyLevel& level : policy_levels()) {
    if (f.predicted_bytes <= limit) return;
    Preflight next = f;
    add_names(next.recompute, level.recompute);
    add_names(next.offload, level.offload);
    next.policy_cost = level.cost;
    plan_phases(recipe, engine, next);
    if (next.predicted_bytes < f.predicted_bytes) f = std::move(next);
  }
}

/// The sizes below the recipe's largest that are micro-batches of its first phase, ascending.
std::vector<int64_t> smaller_micro_batches(const Recipe& recipe) {
  const int64_t data = recipe.data_ranks(), share = recipe.phases[0].batch / data;
  std::vector<int64_t> sizes;
  for (int64_t d = 1; d * d <= share; ++d)
    if (share % d == 0)
      for (const int64_t m : {d, share / d})
        if (m < recipe.phases[0].micro(data) && recipe.phases[0].divides(m * data)) sizes.push_back(m);
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

/// The largest micro-batch below the recipe's with which the run fits; 0: none. Memory grows with it.
int64_t fitting_micro_batch(const Recipe& recipe, const TrainEngine& engine, int64_t limit, Preflight f) {
  const int64_t data = recipe.data_ranks();
  const std::vector<int64_t> sizes = smaller_micro_batches(recipe);
  const auto end = std::partition_point(sizes.begin(), sizes.end(), [&](int64_t m) {
    Recipe smaller = recipe;
    for (PhaseConfig& s : smaller.phases)
      if (s.divides(m * data)) s.micro_batch = std::min(s.micro(data), m);
    plan_phases(smaller, engine, f);
    return f.predicted_bytes <= limit;
  });
  return end == sizes.begin() ? 0 : *std::prev(end);
}

/// Warns of phases whose few replies would balance the experts of everything else.
void plan_balance(const TrainEngine& engine, Preflight& f) {
  if (!engine.balances_routers()) return;
  for (const PhaseConfig& s : engine.recipe().phases)
    if (!kind_of(s).watches_loss && !s.freeze_balance)
      f.warnings.push_back(fmt::format(
          "phase '{}' of kind '{}' moves the selection biases of routers, by replies alone, and tokens leave "
          "the experts that have learned them: set freeze_balance = true in it",
          s.name, s.kind));
}

/// The tokens that are read, and warnings where a source is read too often.
void plan_data(const Recipe& recipe, const PreparedData& data, Preflight& f) {
  std::vector<data::PlannedSource> sources;
  for (const auto& s : data.sources) sources.push_back({s.name(), s.train()->tokens()});
  std::vector<data::PlannedPhase> planned;
  for (const PhaseConfig& s : recipe.phases) {
    const PhaseKind& kind = kind_of(s);
    data::PlannedPhase phase{s.name, kind.sampling ? s.tokens() : 0, {}};
    for (const SourceConfig& c : recipe.data.sources) {
      double weight = s.weights.empty() && (!kind.reads || kind.reads(c)) ? c.weight : 0;
      for (const SourceWeight& w : s.weights)
        if (w.source == c.name) weight = w.weight;
      phase.weights.push_back(weight);
    }
    planned.push_back(std::move(phase));
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    const data::DatasetManifest& manifest = data.sources[i].manifest();
    const bool read =
        std::any_of(planned.begin(), planned.end(), [&](const auto& phase) { return phase.weights[i] > 0; });
    int64_t bytes = 0;
    for (const data::SplitInfo& split : manifest.splits) bytes += split.file_bytes();
    if (read) f.data_bytes += std::min(bytes, f.tokens * manifest.token_bytes);
  }
  const std::string repeats = data::repetition_warning(data::planned_use(sources, planned));
  if (!repeats.empty()) f.warnings.push_back(repeats);
  for (size_t i = 0; i < recipe.phases.size(); ++i)
    for (const std::string& warning : plan_rows(recipe, data, i).warnings) f.warnings.push_back(warning);
}

/// Forward passes are a third of a step's work.
void plan_validation(const Recipe& recipe, const PreparedData& data, Preflight& f) {
  if (f.peak_gflops <= 0) return;
  int64_t tokens = 0;
  for (size_t i = 0; i < data.sources.size(); ++i)
    if (data.sources[i].has_split("validation") && !recipe.data.sources[i].preferences)
      tokens += data.sources[i].validation()->tokens();
  const LevelPlan& l = f.phases.back().levels.front();
  const auto step_tokens = static_cast<double>(l.batch * recipe.phases.back().sequence);
  f.validation_seconds = static_cast<double>(tokens) / step_tokens * l.step_flops / 3 / (1e9 * f.peak_gflops);
}

void explain_shortfall(const Recipe& recipe, const TrainEngine& engine, int64_t limit, Preflight& f) {
  const std::string bound = recipe.memory.limit.empty()
                                ? fmt::format("this machine has {}", format_bytes(static_cast<double>(limit)))
                                : fmt::format("memory.limit is {}", recipe.memory.limit);
  const int64_t micro = fitting_micro_batch(recipe, engine, limit, f);
  f.remedy = micro > 0 ? fmt::format("micro_batch = {} fits", micro) : "use a smaller sequence or model";
  if (recipe.memory.limit.empty())
    f.remedy += fmt::format(
        "; or set memory.limit = \"{:.0f}GiB\" and activations are recomputed or moved to disk until it fits",
        std::floor(static_cast<double>(limit) / (1 << 30)));
  f.shortfall =
      fmt::format("the run needs {}, but {}", format_bytes(static_cast<double>(f.predicted_bytes)), bound);
}

/// The run needs more of the GPU's memory than is free there.
void explain_shortfall_on_gpu(const Recipe& recipe, const TrainEngine& engine, Preflight& f) {
  const MemoryOnGpu& gpu = *f.gpu;
  // Activations alone follow from the micro-batch, there as on the host.
  const int64_t limit = f.predicted_bytes - (gpu.needed() - gpu.free);
  const int64_t micro = fitting_micro_batch(recipe, engine, limit, f);
  f.remedy = micro > 0 ? fmt::format("micro_batch = {} fits", micro)
                       : "use a smaller sequence or model, memory.recompute, or a GPU with more memory";
  f.remedy += "; `nvidia-smi` lists other programs that hold memory of the GPU";
  f.shortfall = fmt::format("the run needs {} of the GPU's memory, of which {} are free",
                            format_bytes(static_cast<double>(gpu.needed())),
                            format_bytes(static_cast<double>(gpu.free)));
}

/// Of as many threads as the kernels use, measured once: all ranks and runs of one process plan with the same
/// numbers.
struct MeasuredMachine {
  MachinePeak peak;
  double copy_gbs;
};
MeasuredMachine measured_machine() {
  constexpr double kCopySeconds = 0.02;
  static std::mutex mutex;
  static std::map<int, MeasuredMachine> machines;
  const std::scoped_lock lock(mutex);
  const auto known = machines.find(num_threads());
  if (known != machines.end()) return known->second;
  return machines[num_threads()] = {machine_peak(), shared_copy_gbs(kCopySeconds)};
}

/// What a save copies of this rank's masters.
int64_t saved_weight_bytes(const TrainEngine& engine) {
  const WeightSet& weights = engine.model().weights();
  int64_t bytes = 0;
  for (int i = 0; i < weights.size(); ++i)
    bytes += engine.owned(i).count() * size_of(weights.master(i).dtype());
  return bytes;
}

}  // namespace

Preflight plan_engine(const TrainEngine& engine, double gflops, double read_gbs) {
  const Recipe& recipe = engine.recipe();
  const int64_t updated = update_cost(engine.optimizer()).elements;
  Preflight f;
  f.peak_gflops = gflops;
  f.read_gbs = read_gbs;
  f.saved_elements = engine.owned_elements();
  f.weight_bytes = engine.model().bytes();
  f.gradient_bytes = engine.gradients().bytes();
  f.optimizer_bytes = engine.optimizer().state_bytes();
  if (compute_device() != DeviceKind::cuda) f.scratch_bytes = engine.optimizer().scratch_bytes();
  const double share = std::min(
      1.0, static_cast<double>(f.saved_elements) / static_cast<double>(std::max<int64_t>(1, updated)));
  f.saved_weight_bytes = saved_weight_bytes(engine);
  f.snapshot_bytes =
      f.saved_weight_bytes + static_cast<int64_t>(share * static_cast<double>(f.optimizer_bytes));
  f.recompute = recipe.memory.recompute;
  f.offload = recipe.memory.offload;
  f.fp8 = recipe.memory.fp8;
  for (const PhaseConfig& s : recipe.phases) f.tokens += planned_tokens(recipe, s);
  plan_phases(recipe, engine, f);
  const int64_t chosen = parse_memory(recipe.memory.limit, "memory.limit");
  if (chosen > 0) fit_memory(recipe, engine, chosen, f);
  return f;
}

Preflight preflight(const TrainEngine& engine, const PreparedData* data, int64_t process_bytes) {
  const Recipe& recipe = engine.recipe();
  const auto [peak, copy_gbs] = measured_machine();
  Preflight f =
      plan_engine(engine, recipe.run.precision == PrecisionChoice::bf16 ? peak.dot_gflops : peak.fma_gflops,
                  peak.read_gbs);
  f.f32_gflops = peak.fma_gflops;
  if (compute_device() == DeviceKind::cpu) f.copy_gbs = copy_gbs;
  f.process_bytes = process_bytes;
  plan_balance(engine, f);
  if (data != nullptr) {
    plan_data(recipe, *data, f);
    plan_validation(recipe, *data, f);
  }
  const int64_t chosen = parse_memory(recipe.memory.limit, "memory.limit");
  if (compute_device() == DeviceKind::cuda) f.gpu = memory_on_gpu(engine, f.activation_bytes());
  f.text = describe_plan(recipe, engine.model(), data, f);
  const int64_t limit = chosen > 0 ? chosen : machine_info().memory_bytes - f.process_bytes;
  if (f.predicted_bytes > limit)
    explain_shortfall(recipe, engine, limit, f);
  else if (f.gpu && f.gpu->needed() > f.gpu->free)
    explain_shortfall_on_gpu(recipe, engine, f);
  return f;
}

void require_fit(const Preflight& f) {
  if (!f.shortfall.empty()) throw Error(fmt::format("{}:\n{}", f.shortfall, f.text), f.remedy);
}

namespace {

/// What the recipe names and a start would not find.
std::vector<std::string> missing_inputs(FileSystem& fs, const Recipe& recipe, bool prepared) {
  std::vector<std::string> missing;
  const std::string& tokenizer = recipe.tokenizer.path;
  if (!tokenizer.empty() && !Tokenizer::holds_tokenizer(fs, tokenizer_folder(fs, recipe)))
    missing.push_back(fmt::format("tokenizer.path: no tokenizer in '{}'", tokenizer));
  if (const std::string& from = recipe.run.start_from; !from.empty() && !fs.exists(from))
    missing.push_back(fmt::format("run.start_from: no model at '{}'", from));
  for (size_t i = 0; i < recipe.data.sources.size() && !prepared; ++i) try {
      if (!recipe.data.sources[i].path.empty() &&
          !fs.exists(dataset_folder(recipe, recipe.data.sources[i]) + "/" + data::kManifestName))
        data::find_source_files(fs, {recipe.data.sources[i].path});
    } catch (const Error& e) {
      missing.push_back(fmt::format("data.sources.{}: {}", i, e.what()));
    }
  return missing;
}

}  // namespace

Recipe with_planned_vocabulary(FileSystem& fs, Recipe recipe) {
  if (recipe.model.vocab != 0) return recipe;
  recipe.model.vocab = is_prepared(fs, recipe) ? open_data(fs, recipe).vocab : planned_vocabulary(recipe);
  return recipe;
}

Preflight plan_run(FileSystem& fs, Recipe recipe) {
  const int64_t process_bytes = resident_bytes();
  std::vector<std::string> missing = missing_inputs(fs, recipe, is_prepared(fs, recipe));
  const std::optional<PreparedData> data =
      missing.empty() && is_prepared(fs, recipe) ? std::optional(open_data(fs, recipe)) : std::nullopt;
  if (data && recipe.model.vocab == 0) recipe.model.vocab = data->vocab;
  recipe = with_planned_vocabulary(fs, std::move(recipe));
  const int ranks = planned_ranks(recipe);
  const std::string unchecked = check_ranks(recipe, ranks);
  recipe = on_paper(std::move(recipe));
  RecordingWorld world(0, ranks);
  const RunRanks place(recipe, &world);
  const std::vector<std::string> changes = fit_to_ranks(recipe, place.groups().batch_ranks());
  const TrainEngine engine(recipe, place, Backing::nothing);
  Preflight f = preflight(engine, data ? &*data : nullptr, process_bytes);
  f.missing = std::move(missing);
  f.warnings.insert(f.warnings.end(), changes.begin(), changes.end());
  if (!unchecked.empty()) f.warnings.push_back(fmt::format("not checked for {} ranks: {}", ranks, unchecked));
  if (!engine.recipe().memory.limit.empty()) require_fit(f);
  return f;
}

}  // namespace ingot

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
#include "base/progress.h"
#include "data/mixture.h"
#include "data/source.h"
#include "device/machine/peak.h"
#include "train/memory_policy.h"
#include "train/phase_kind.h"
#include "train/phase_sampler.h"
#include "train/rank_check.h"
#include "train/run_layout.h"

namespace ingot {
namespace {

/// Elements of the parameters that this rank updates.
int64_t updated_elements(const Optimizer& optimizer) {
  int64_t n = 0;
  for (const ParamView& p : optimizer.params()) n += p.numel();
  return n;
}

std::string amount(int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

/// A forward pass numbers its tokens with 32 bits, and a plan takes a few bytes for each.
void require_countable(const PhaseConfig& phase, int64_t micro_batch) {
  constexpr int64_t kMost = int64_t{1} << 26;
  if (micro_batch * phase.sequence > kMost)
    throw Error(fmt::format("phase '{}': a forward pass of {} sequences of {} tokens has more than {} tokens",
                            phase.name, micro_batch, phase.sequence, group_digits(kMost)),
                "set micro_batch of the phase to a smaller divisor of its batch, or choose a smaller batch");
}

/// `recipe`: the engine's, or a variant of it with other micro-batches.
PhasePlan plan_phase(const Recipe& recipe, const TrainEngine& engine, const PhaseConfig& phase,
                     const SlotPolicy* policy, double gflops, double read_gbs) {
  const Optimizer& optimizer = engine.optimizer();
  const StepRanks ranks = engine.step_ranks();
  PhasePlan p;
  p.name = phase.name;
  p.tokens = phase.tokens();
  p.optimizer_flops = optimizer.update_flops();
  // An update reads weights and gradients, writes weights, and reads and writes its state.
  const double optimizer_bytes = 12.0 * static_cast<double>(updated_elements(optimizer)) +
                                 2.0 * static_cast<double>(optimizer.state_bytes());
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
    l.roofline_seconds =
        (l.step_flops + p.optimizer_flops) / (gflops * 1e9) + optimizer_bytes / (read_gbs * 1e9);
    p.levels.push_back(std::move(l));
  }
  return p;
}

std::string format_flops(double flops) {
  return flops < 1e13 ? fmt::format("{:.1f} GFLOP", flops * 1e-9)
                      : fmt::format("{:.4g} PFLOP", flops * 1e-15);
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text;
}

/// The lines of a phase: what it consumes, its batch sizes, what a step costs.
std::vector<std::string> describe_phase(const Recipe& recipe, size_t phase, const PhasePlan& p) {
  const PhaseConfig& s = recipe.phases[phase];
  std::vector<std::string> lines = {
      fmt::format("{}: {} steps of {} sequences x {} tokens ({}) = {} tokens; lr {:.4g} to {:.4g} ({})",
                  s.name, group_digits(s.steps),
                  s.levels() > 1 ? fmt::format("{} and more", s.batch) : fmt::format("{}", s.batch),
                  s.sequence, group_digits(s.batch * s.sequence), format_count(static_cast<double>(p.tokens)),
                  recipe.learning_rate(phase, s.continues ? 0 : std::min(s.warmup, s.steps - 1)),
                  recipe.learning_rate(phase, s.steps - 1),
                  name_of(recipe.phases[recipe.schedule_phase(phase)].schedule))};
  const ScheduleConfig schedule = s.resolved_schedule(recipe.schedule_steps(phase));
  if (!s.continues && marked_steps(schedule).size() > 2)
    lines.push_back("  learning rate: " + describe_schedule(schedule, s.lr));
  if (!s.published_tokens.empty())
    lines.push_back(fmt::format("  its source says {} tokens; these steps make {}",
                                list_of(s.published_tokens), format_count(static_cast<double>(p.tokens))));
  if (s.target_loss > 0)
    lines.push_back(fmt::format("  target: validation loss of {} at most {}{}", s.target_source,
                                s.target_loss, s.target_ends ? ", which ends the run" : ""));
  int64_t step = 0;
  for (int64_t i = 0; i < s.levels(); ++i) {
    const LevelPlan& l = p.levels[static_cast<size_t>(i)];
    std::string line;
    if (i > 0 && s.batches[static_cast<size_t>(i - 1)].loss)
      line = fmt::format("once the loss is {}: {} sequences, ", *s.batches[static_cast<size_t>(i - 1)].loss,
                         l.batch);
    else if (s.levels() > 1 && (i == 0 || l.steps > 0))
      line = fmt::format("from step {}: {} sequences, ", step, l.batch);
    else if (s.levels() > 1)
      line = fmt::format(
          "then from {} tokens: {} sequences, ",
          format_count(static_cast<double>(s.batches[static_cast<size_t>(i - 1)].tokens.value_or(0))),
          l.batch);
    if (s.rate_factor(i) != 1) line += fmt::format("lr x {:.3g}, ", s.rate_factor(i));
    const int64_t parts = l.batch / (l.micro_batch * recipe.data_ranks());
    line += fmt::format(
        "{} micro-batch{} of {}; step: {} and {} in the optimizer, at least {}; activations {} (head {})",
        parts, parts == 1 ? "" : "es", l.micro_batch, format_flops(l.step_flops),
        format_flops(p.optimizer_flops), format_seconds(l.roofline_seconds),
        amount(l.micro.memory.slab_bytes), name_of(p.head));
    step += l.steps;
    lines.push_back(std::move(line));
  }
  return lines;
}

/// What a checkpoint holds; papers count in decimal gigabytes, and some add the bf16 weights that a run
/// computes with.
std::string describe_checkpoint(const Recipe& recipe, int64_t parameters, const Preflight& f) {
  const auto decimal = [](int64_t bytes) {
    return fmt::format("{:.4g} GB", static_cast<double>(bytes) * 1e-9);
  };
  std::string text = fmt::format("{} ({}): weights {} (f32), optimizer {}", amount(f.snapshot_bytes),
                                 decimal(f.snapshot_bytes), amount(f.saved_weight_bytes),
                                 amount(f.snapshot_bytes - f.saved_weight_bytes));
  if (recipe.run.precision == PrecisionChoice::bf16)
    text += fmt::format("; {} counted with the bf16 copies", decimal(f.snapshot_bytes + 2 * parameters));
  return text;
}

/// The size of the vocabulary that preparing the data will make.
int64_t planned_vocabulary(const Recipe& recipe) {
  if (!recipe.tokenizer.path.empty()) return Tokenizer::load(recipe.tokenizer.path).vocab_size();
  if (recipe.tokenizer.kind == TokenizerKind::bpe) return recipe.tokenizer.vocab;
  throw Error(
      "a plan needs the size of the vocabulary, and the text, whose characters it counts, is not read yet",
      "add --model.vocab=N, e.g. 65 for English characters; or start the run, which prepares the data");
}

/// What a plan knows of a source whose tokens are not there yet.
std::string unprepared(const SourceConfig& source) {
  try {
    double bytes = 0;
    for (const data::SourceFile& file : data::find_source_files(real_file_system(), {source.path}))
      bytes += static_cast<double>(file.bytes);
    return fmt::format("not prepared yet, {} of text", format_bytes(bytes));
  } catch (const Error& error) {
    return fmt::format("not prepared yet, and {}", error.what());
  }
}

/// What the buffers of the largest micro-batch are for, at their peak.
std::string describe_activations(const Preflight& f) {
  const StepPlan* largest = nullptr;
  for (const PhasePlan& phase : f.phases)
    for (const LevelPlan& level : phase.levels)
      if (largest == nullptr || level.micro.peak_bytes > largest->peak_bytes) largest = &level.micro;
  std::string text;
  if (largest == nullptr || largest->peak_bytes == 0) return text;
  for (const auto& [category, bytes] : largest->categories)
    if (bytes > 0)
      text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", category,
                          100 * static_cast<double>(bytes) / static_cast<double>(largest->peak_bytes));
  return "activations at their peak: " + text;
}

std::string describe(const Recipe& recipe, const Model& model, const PreparedData* data, const Preflight& f) {
  const ParameterCounts n = count_parameters(model.decoder());
  std::string t;
  const auto line = [&](const char* name, const std::string& value) {
    t += fmt::format("  {:<12} {}\n", name, value);
  };
  line("model", fmt::format("{} parameters ({}), {} active per token ({} without embedding)",
                            format_count(static_cast<double>(n.total)), group_digits(n.total),
                            format_count(static_cast<double>(n.active)),
                            format_count(static_cast<double>(n.active_without_embedding))));
  const int64_t trainable = model.decoder().table().trainable();
  if (trainable < n.total)
    line("frozen",
         fmt::format("all but {} parameters ({:.2f} %)", format_count(static_cast<double>(trainable)),
                     100 * static_cast<double>(trainable) / static_cast<double>(n.total)));
  if (data == nullptr)
    for (const SourceConfig& s : recipe.data.sources) line("data", s.name + ": " + unprepared(s));
  if (data != nullptr)
    for (const auto& s : data->sources)
      line("data",
           fmt::format(
               "{}: {} training tokens, {}", s.name(), format_count(static_cast<double>(s.train()->tokens())),
               s.has_split("validation")
                   ? format_count(static_cast<double>(s.validation()->tokens())) + " validation tokens"
                   : "no validation split"));
  for (size_t i = 0; i < f.phases.size(); ++i) {
    const char* name = "phase";
    for (const std::string& text : describe_phase(recipe, i, f.phases[i])) {
      line(name, text);
      name = "";
    }
    if (data != nullptr)
      for (const std::string& text : plan_rows(recipe, *data, i).lines) line("", "  " + text);
  }
  const bool bf16 = recipe.run.precision == PrecisionChoice::bf16;
  line("dtypes", fmt::format("weights {}, gradients f32, accumulation f32, first moments {}, second {}",
                             bf16 ? "f32, read as bf16" : "f32", name_of(recipe.optimizer.first_moment),
                             name_of(recipe.optimizer.second_moment)));
  line("memory",
       fmt::format(
           "{}: weights {}, gradients {},{} optimizer {} ({:.1f} bytes per parameter), checkpoint copy "
           "{}, activations {}",
           amount(f.predicted_bytes), amount(f.weight_bytes), amount(f.gradient_bytes),
           f.transient_bytes > 0 ? fmt::format(" in flight {},", amount(f.transient_bytes)) : "",
           amount(f.optimizer_bytes), static_cast<double>(f.optimizer_bytes) / static_cast<double>(n.total),
           amount(f.snapshot_bytes),
           amount(f.predicted_bytes - f.weight_bytes - f.gradient_bytes - f.transient_bytes -
                  f.optimizer_bytes - f.snapshot_bytes)));
  if (const std::string parts = describe_activations(f); !parts.empty()) line("", parts);
  if (f.process_bytes > 0) line("", fmt::format("and {} of the program itself", amount(f.process_bytes)));
  if (!f.recompute.empty()) line("policy", fmt::format("recomputed: {}", list_of(f.recompute)));
  if (!f.offload.empty()) line("policy", fmt::format("on disk until backward: {}", list_of(f.offload)));
  if (!f.policy_cost.empty())
    line("", fmt::format("chosen for memory.limit = {}: {}", recipe.memory.limit, f.policy_cost));
  line("checkpoint", describe_checkpoint(recipe, n.total, f));
  if (recipe.data_ranks() * recipe.parallel.ranks_per_group() > 1) {
    const char* name = "ranks";
    for (const std::string& text : describe_layout(recipe)) line(std::exchange(name, ""), text);
  }
  line("machine",
       fmt::format("{:.0f} GFLOP/s {}, {:.0f} GB/s", f.peak_gflops, bf16 ? "bf16" : "fp32", f.read_gbs));
  line("time", fmt::format("{} tokens; lower bound from the roofline: {}",
                           format_count(static_cast<double>(f.tokens)), format_seconds(f.roofline_seconds)));
  return t;
}

/// The phases and the memory of a run under a policy.
void plan_phases(const Recipe& recipe, const TrainEngine& engine, Preflight& f) {
  const NamedPolicy policy(f.recompute, f.offload);
  int64_t slab = 0, gathered = 0;
  f.phases.clear();
  f.roofline_seconds = 0;
  for (const PhaseConfig& s : recipe.phases) {
    f.phases.push_back(plan_phase(recipe, engine, s, &policy, f.peak_gflops, f.read_gbs));
    for (const LevelPlan& l : f.phases.back().levels) {
      slab = std::max(slab, l.micro.memory.slab_bytes);
      gathered = std::max(gathered, l.micro.gathered_weight_bytes);
      f.roofline_seconds += l.roofline_seconds * static_cast<double>(l.steps);
    }
  }
  const bool split = engine.step_ranks().schedule == PipelineScheduleKind::zero_bubble;
  f.transient_bytes = engine.gradients().transient_bytes(split) + gathered;
  f.predicted_bytes =
      f.weight_bytes + f.gradient_bytes + f.transient_bytes + f.optimizer_bytes + f.snapshot_bytes + slab;
}

void append(std::vector<std::string>& names, const std::vector<std::string>& more) {
  for (const std::string& name : more)
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

/// Adds policy levels until the run fits `limit`, or none is left.
void fit_memory(const Recipe& recipe, const TrainEngine& engine, int64_t limit, Preflight& f) {
  for (const PolicyLevel& level : policy_levels()) {
    if (f.predicted_bytes <= limit) return;
    Preflight next = f;
    append(next.recompute, level.recompute);
    append(next.offload, level.offload);
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

/// Warns where the run reads a source too often.
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
  const std::string repeats = data::repetition_warning(data::planned_use(sources, planned));
  if (!repeats.empty()) f.warnings.push_back(repeats);
  for (size_t i = 0; i < recipe.phases.size(); ++i)
    for (const std::string& warning : plan_rows(recipe, data, i).warnings) f.warnings.push_back(warning);
}

void explain_shortfall(const Recipe& recipe, const TrainEngine& engine, int64_t limit, Preflight& f) {
  const std::string bound = recipe.memory.limit.empty()
                                ? fmt::format("this machine has {}", amount(limit))
                                : fmt::format("memory.limit is {}", recipe.memory.limit);
  const int64_t micro = fitting_micro_batch(recipe, engine, limit, f);
  f.remedy = micro > 0 ? fmt::format("micro_batch = {} fits", micro) : "use a smaller sequence or model";
  if (recipe.memory.limit.empty())
    f.remedy += fmt::format(
        "; or set memory.limit = \"{:.0f}GiB\" and activations are recomputed or moved to disk until it fits",
        std::floor(static_cast<double>(limit) / (1 << 30)));
  f.shortfall = fmt::format("the run needs {}, but {}", amount(f.predicted_bytes), bound);
}

/// Of as many threads as the kernels use, measured once: all ranks and runs of one process plan with the same
/// numbers.
MachinePeak measured_peak() {
  static std::mutex mutex;
  static std::map<int, MachinePeak> peaks;
  const std::scoped_lock lock(mutex);
  const auto known = peaks.find(num_threads());
  return known != peaks.end() ? known->second : peaks[num_threads()] = machine_peak();
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

Preflight preflight(const TrainEngine& engine, const PreparedData* data, int64_t process_bytes) {
  const Recipe& recipe = engine.recipe();
  const int64_t saved = engine.owned_elements(), updated = updated_elements(engine.optimizer());
  Preflight f;
  const MachinePeak peak = measured_peak();
  f.peak_gflops = recipe.run.precision == PrecisionChoice::bf16 ? peak.dot_gflops : peak.fma_gflops;
  f.read_gbs = peak.read_gbs;
  f.process_bytes = process_bytes;
  f.weight_bytes = engine.model().bytes();
  f.gradient_bytes = engine.gradients().bytes();
  f.optimizer_bytes = engine.optimizer().state_bytes();
  const double share =
      std::min(1.0, static_cast<double>(saved) / static_cast<double>(std::max<int64_t>(1, updated)));
  f.saved_weight_bytes = saved_weight_bytes(engine);
  f.snapshot_bytes =
      f.saved_weight_bytes + static_cast<int64_t>(share * static_cast<double>(f.optimizer_bytes));
  f.recompute = recipe.memory.recompute;
  f.offload = recipe.memory.offload;
  for (const PhaseConfig& s : recipe.phases) f.tokens += s.tokens();
  if (data != nullptr) plan_data(recipe, *data, f);
  plan_phases(recipe, engine, f);
  const int64_t chosen = parse_memory(recipe.memory.limit, "memory.limit");
  if (chosen > 0) fit_memory(recipe, engine, chosen, f);
  f.text = describe(recipe, engine.model(), data, f);
  const int64_t limit = chosen > 0 ? chosen : machine_info().memory_bytes - f.process_bytes;
  if (f.predicted_bytes > limit) explain_shortfall(recipe, engine, limit, f);
  return f;
}

void require_fit(const Preflight& f) {
  if (!f.shortfall.empty()) throw Error(fmt::format("{}:\n{}", f.shortfall, f.text), f.remedy);
}

Preflight plan_run(FileSystem& fs, Recipe recipe) {
  const std::optional<PreparedData> data =
      is_prepared(fs, recipe) ? std::optional(open_data(fs, recipe)) : std::nullopt;
  if (recipe.model.vocab == 0) recipe.model.vocab = data ? data->vocab : planned_vocabulary(recipe);
  const int ranks = planned_ranks(recipe);
  const std::string unchecked = check_ranks(recipe, ranks);
  const bool many = recipe.data_ranks() * recipe.parallel.tensor * recipe.parallel.expert > 1;
  const TrainEngine engine(for_one_rank(std::move(recipe)), Backing::nothing);
  Preflight f = preflight(engine, data ? &*data : nullptr);
  if (many) f.warnings.push_back("planned for one rank: [parallel] counts when the ranks have started");
  if (!unchecked.empty()) f.warnings.push_back(fmt::format("not checked for {} ranks: {}", ranks, unchecked));
  if (!engine.recipe().memory.limit.empty()) require_fit(f);
  return f;
}

}  // namespace ingot

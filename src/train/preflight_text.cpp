// The numbers of a plan as the table that is printed. See preflight.h.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/progress.h"
#include "data/source.h"
#include "report/table.h"
#include "train/phase_sampler.h"
#include "train/preflight.h"
#include "train/run_layout.h"

namespace ingot {
namespace {

std::string amount(int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
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
std::vector<std::string> describe_phase(const Recipe& recipe, size_t phase, const PhasePlan& p,
                                        const PhaseWords& words) {
  const PhaseConfig& s = recipe.phases[phase];
  const std::string consumes =
      words.consumes.empty()
          ? fmt::format("{} sequences x {} tokens ({}) = {} tokens",
                        s.levels() > 1 ? fmt::format("{} and more", s.batch) : fmt::format("{}", s.batch),
                        s.sequence, group_digits(s.batch * s.sequence),
                        format_count(static_cast<double>(p.tokens)))
          : words.consumes;
  std::vector<std::string> lines = {
      fmt::format("{}: {} steps of {}; lr {:.4g} to {:.4g} ({})", s.name, group_digits(s.steps), consumes,
                  recipe.learning_rate(phase, s.continues ? 0 : std::min(s.warmup, s.steps - 1)),
                  recipe.learning_rate(phase, s.steps - 1),
                  name_of(recipe.phases[recipe.schedule_phase(phase)].schedule))};
  const ScheduleConfig schedule = s.resolved_schedule(recipe.schedule_steps(phase));
  if (!s.continues && marked_steps(schedule).size() > 2)
    lines.push_back("  learning rate: " + describe_schedule(schedule, s.lr));
  for (const std::string& line : words.lines) lines.push_back("  " + line);
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
        "{} micro-batch{} of {}; step: {} and {} in the optimizer, at least {}{}{}; activations {} (head {})",
        parts, parts == 1 ? "" : "es", l.micro_batch, format_flops(l.step_flops),
        format_flops(p.optimizer_flops), format_seconds(l.roofline_seconds),
        p.source.flops > 0 ? " with sampling" : "",
        plans_longest(s) ? " where every reply has its full length" : "", amount(l.micro.memory.slab_bytes),
        name_of(p.head));
    step += l.steps;
    lines.push_back(std::move(line));
  }
  return lines;
}

/// What the phase's kind says of it.
PhaseWords words_of(const Recipe& recipe, size_t phase, const Model& model, const PhasePlan& p) {
  const PhaseConfig& s = recipe.phases[phase];
  const PhaseKind& kind = kind_of(s);
  if (!kind.describe) return {};
  PhaseWork work;
  work.moe_layers = static_cast<int64_t>(model.decoder().moe_layers().size());
  for (const LevelPlan& l : p.levels) {
    // Work of a rank is that of all, divided among the data ranks; the source's is that of all.
    const auto steps = static_cast<double>(l.steps);
    work.training_flops += l.step_flops * static_cast<double>(recipe.data_ranks()) * steps;
    work.source_flops += p.source.flops * steps;
  }
  return kind.describe(recipe, phase, work);
}

/// What a checkpoint holds; papers count in decimal gigabytes, and some add the bf16 weights that a run
/// computes with.
std::string describe_checkpoint(const Recipe& recipe, const Preflight& f) {
  const auto decimal = [](int64_t bytes) {
    return fmt::format("{:.4g} GB", static_cast<double>(bytes) * 1e-9);
  };
  std::string text = fmt::format("{} ({}): weights {} (f32), optimizer {}", amount(f.snapshot_bytes),
                                 decimal(f.snapshot_bytes), amount(f.saved_weight_bytes),
                                 amount(f.snapshot_bytes - f.saved_weight_bytes));
  if (recipe.run.precision == PrecisionChoice::bf16)
    text +=
        fmt::format("; {} counted with the bf16 copies", decimal(f.snapshot_bytes + 2 * f.saved_elements));
  if (recipe.data_ranks() * recipe.parallel.ranks_per_group() > 1) text += "; of this rank";
  return text;
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

std::string describe(const MemoryOnGpu& gpu) {
  std::string text = amount(gpu.needed()) + ":";
  if (gpu.weights > 0)
    text += fmt::format(" weights {}, gradients {}, optimizer {},{} scratch of the update {},",
                        amount(gpu.weights), amount(gpu.gradients), amount(gpu.optimizer),
                        gpu.rounded > 0 ? fmt::format(" weights in bf16 {},", amount(gpu.rounded)) : "",
                        amount(gpu.scratch));
  return text + fmt::format(" activations {}; {} of {} are free", amount(gpu.activations), amount(gpu.free),
                            amount(gpu.all));
}

}  // namespace

std::string describe_plan(const Recipe& recipe, const Model& model, const PreparedData* data,
                          const Preflight& f) {
  const ParameterCounts n = count_parameters(model.decoder());
  std::string t;
  const auto line = [&](const char* name, const std::string& value) { t += named_line(name, value); };
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
    for (const std::string& text :
         describe_phase(recipe, i, f.phases[i], words_of(recipe, i, model, f.phases[i]))) {
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
           "{}: weights {}, gradients {},{} optimizer {} ({:.1f} bytes per parameter),{} checkpoint "
           "copy {}, activations {}{}{}{}{}",
           amount(f.total_bytes()), amount(f.weight_bytes), amount(f.gradient_bytes),
           f.transient_bytes > 0 ? fmt::format(" in flight {},", amount(f.transient_bytes)) : "",
           amount(f.optimizer_bytes), static_cast<double>(f.optimizer_bytes) / static_cast<double>(n.total),
           f.scratch_bytes > 0 ? fmt::format(" scratch of its update {},", amount(f.scratch_bytes)) : "",
           amount(f.snapshot_bytes), amount(f.activation_bytes()),
           f.source_bytes > 0 ? ", sampling " + amount(f.source_bytes) : "",
           f.task_bytes > 0 ? ", evaluation tasks " + amount(f.task_bytes) : "",
           f.data_bytes > 0 ? ", mapped tokens " + amount(f.data_bytes) : "",
           f.process_bytes > 0 ? fmt::format(", the program itself {}", amount(f.process_bytes)) : ""));
  if (f.gpu) line("on the GPU", describe(*f.gpu));
  if (const std::string parts = describe_activations(f); !parts.empty()) line("", parts);
  if (!f.recompute.empty()) line("policy", fmt::format("recomputed: {}", list_of(f.recompute)));
  if (!f.fp8.empty()) line("policy", fmt::format("in FP8 until backward: {}", list_of(f.fp8)));
  if (!f.offload.empty()) line("policy", fmt::format("on disk until backward: {}", list_of(f.offload)));
  if (!f.policy_cost.empty())
    line("", fmt::format("chosen for memory.limit = {}: {}", recipe.memory.limit, f.policy_cost));
  line("checkpoint", describe_checkpoint(recipe, f));
  if (recipe.data_ranks() * recipe.parallel.ranks_per_group() > 1) {
    const char* name = "ranks";
    for (const std::string& text : describe_layout(recipe)) line(std::exchange(name, ""), text);
  }
  line("machine",
       fmt::format("{:.0f} GFLOP/s {}, {:.0f} GB/s", f.peak_gflops, bf16 ? "bf16" : "fp32", f.read_gbs));
  const bool longest = std::any_of(recipe.phases.begin(), recipe.phases.end(), plans_longest);
  line("time", fmt::format("{} tokens; lower bound from the roofline: {}{}",
                           format_count(static_cast<double>(f.tokens)), format_seconds(f.roofline_seconds),
                           longest ? ", where every reply has its full length" : ""));
  if (f.validation_seconds > 0.1 * f.roofline_seconds)
    line("", fmt::format("and {} for the validation at the end, which takes all tokens held out",
                         format_seconds(f.validation_seconds)));
  return t;
}

}  // namespace ingot

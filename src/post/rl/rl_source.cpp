// See rl_source.h.
#include "post/rl/rl_source.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "post/rl/calibration.h"
#include "post/rl/policy_objective.h"
#include "post/rl/rollout_counts.h"
#include "post/rl/rollout_metrics.h"
#include "post/rl/share_rollouts.h"
#include "report/json_lines.h"
#include "report/run_record.h"
#include "train/prepare.h"

namespace ingot {
namespace {

std::vector<environments::EnvironmentPointer> environments_of(const RlConfig& config) {
  std::vector<environments::EnvironmentPointer> list;
  for (const RlEnvironmentConfig& e : config.environments)
    list.push_back(environments::find_environment(e.name));
  return list;
}

Curriculum curriculum_of(const RlConfig& config,
                         const std::vector<environments::EnvironmentPointer>& environments) {
  std::vector<CurriculumEnvironment> list;
  for (size_t e = 0; e < environments.size(); ++e) {
    const RlEnvironmentConfig& c = config.environments[e];
    const environments::DifficultyRange all = environments[e]->difficulty();
    CurriculumEnvironment& one = list.emplace_back();
    one.name = c.name, one.weight = c.weight;
    one.lowest = c.least.value_or(all.least), one.highest = c.most.value_or(all.most);
    one.start = c.difficulty.value_or(one.lowest);
    if (one.lowest < all.least || one.highest > all.most)
      throw Error(fmt::format("rl.environments: '{}' has difficulties {} to {}, the recipe asks for {} to {}",
                              c.name, all.least, all.most, one.lowest, one.highest),
                  "narrow `least` and `most`");
  }
  return Curriculum(std::move(list),
                    {config.curriculum.moves, config.curriculum.window, config.curriculum.raise});
}

RolloutOptions rollout_options(const SourceContext& context) {
  const RlConfig& c = *context.config().rl;
  RolloutOptions o;
  o.samples = c.samples, o.max_tokens = c.max_tokens;
  o.thinking_tokens = c.thinking_tokens, o.answer_tokens = c.answer_tokens;
  o.sampling = {.temperature = c.temperature,
                .top_k = c.top_k,
                .top_p = c.top_p,
                .min_p = c.min_p,
                .seed = static_cast<uint64_t>(context.recipe().run.seed)};
  o.positions = std::min(context.config().sequence, context.engine.model().config().context);
  o.cache_bytes = c.cache_mib << 20;
  o.routes = c.updates_per_batch > 1 && !context.engine.model().decoder().moe_layers().empty();
  o.repetition = c.repetition, o.repetition_chunk = c.repetition_chunk;
  return o;
}

}  // namespace

RlSource::RlSource(const SourceContext& context)
    : context_(context),
      template_(require_chat_template(context.fs, context.recipe())),
      environments_(environments_of(config())),
      curriculum_(curriculum_of(config(), environments_)),
      pool_(environments_.size()),
      sampler_(context.engine.model(), context.data.tokenizer, template_, rollout_options(context)),
      aggregation_(context.engine.model(), context.data.tokenizer, template_, config(), seed()) {
  if (config().replay.rows > 0) text_.emplace(context_);
}

RlSource::~RlSource() = default;

int64_t RlSource::update_of(int64_t step) const {
  return (step - context_.sampler.first_step()) % config().updates_per_batch;
}

data::Batch RlSource::next(int64_t step) {
  const RlConfig& c = config();
  if (!calibrated_) {
    calibrate(step);
    fill_pool();
  }
  if (update_of(step) == 0) collect(step);
  step_ = step;
  PolicyBatchShape shape;
  shape.sequence = context_.config().sequence;
  shape.multiple = context_.recipe().data_ranks();
  shape.aggregation = c.loss.aggregation;
  shape.constant = static_cast<double>(c.loss.constant > 0 ? c.loss.constant : c.max_tokens);
  data::Batch batch = policy_batch(groups_, shape);
  replay_kept(groups_, batch);
  if (c.kl_reference > 0) refer(step, batch);
  // Weights have moved since the replies were drawn.
  if (rollout_options(context_).routes && update_of(step) > 0)
    replay_routes(groups_, static_cast<int64_t>(context_.engine.model().decoder().moe_layers().size()),
                  batch);
  tally_.fill = fill_of(batch);
  if (text_) text_->append(step, batch);
  return batch;
}

void RlSource::refer(int64_t step, data::Batch& batch) {
  const int64_t begun = context_.sampler.first_step();
  if (!reference_)
    reference_ = step == begun ? std::make_unique<ReferencePolicy>(context_.engine)
                               : std::make_unique<ReferencePolicy>(context_, begun);
  if (reference_logprobs_.empty()) {
    const PhaseConfig& phase = context_.config();
    reference_logprobs_ = reference_->logprobs(context_.engine, context_.sampler.phase(), step - begun, batch,
                                               static_cast<float>(1 / phase.rl->temperature));
  }
  add_reference(reference_logprobs_, config().kl_reference, batch);
}

RolloutGroup RlSource::new_group(const Curriculum::Draw& draw, uint64_t number, const std::string& key,
                                 std::optional<bool> thinking) const {
  RolloutGroup g;
  g.draw = draw;
  g.key = hash64(fmt::format("{} {}", key, context_.sampler.phase()));
  g.problem =
      environments_[draw.environment]->make(seed() % environments::kHeldOutSeeds, number, draw.difficulty);
  sampler_.ask(g, thinking);
  return g;
}

RolloutGroup RlSource::next_group(int64_t step, int64_t ordinal, const Random& random) {
  const auto number = static_cast<uint64_t>(step * kProblemsPerStep + ordinal);
  Curriculum::Draw draw = curriculum_.draw(random, number);
  const std::string key = fmt::format("rl {}", number);
  if (pool_.empty()) return new_group(draw, number, key, thinking_switch(config().thinking, ordinal));
  const ProblemPool::Entry& entry = pool_.problem(draw.environment, curriculum_.drawn(draw.environment) - 1);
  draw.difficulty = entry.difficulty;
  return new_group(draw, entry.number, key, thinking_switch(config().thinking, ordinal));
}

void RlSource::show_candidates(std::vector<RolloutGroup>& groups, int64_t number) {
  const double begin = monotonic_seconds();
  std::vector<RolloutGroup*> shown;
  for (RolloutGroup& g : groups)
    if (shows_candidates(config().aggregation, number++)) shown.push_back(&g);
  if (shown.empty()) return;
  aggregation_.show(shown, sampler_);
  tally_.cost.sample_seconds += monotonic_seconds() - begin;
}

void RlSource::add_bonuses(RolloutGroup& group, int64_t step) const {
  const RlLengthConfig& l = config().length;
  const auto done = static_cast<double>(step - context_.sampler.first_step());
  LengthReward rule;
  rule.coefficient =
      l.ramp == 0 ? l.reward : l.reward * std::min(1.0, 0.1 + 0.9 * done / static_cast<double>(l.ramp));
  rule.longest = l.longest > 0 ? l.longest : config().max_tokens, rule.tolerance = l.tolerance;
  rule.accuracy_tolerance = l.accuracy_tolerance;
  std::vector<int64_t> lengths;
  for (const Rollout& r : group.rollouts)
    if (!r.left_out) lengths.push_back(r.length());
  const std::vector<double> bonuses =
      length_bonuses(rule, group.rewards(), lengths, curriculum_.best(group.draw.environment).best());
  size_t next = 0;
  for (Rollout& r : group.rollouts)
    if (!r.left_out)
      r.bonus = bonuses[next++] + overlong_penalty(r.length(), config().max_tokens, l.overlong);
}

void RlSource::collect(int64_t step) {
  const RlConfig& c = config();
  const Random random(seed(), RandomPurpose::mixture, hash64("rl " + context_.config().name));
  groups_.clear(), reference_logprobs_.clear();
  tally_ = {};
  int64_t ordinal = 0;
  const auto wanted = static_cast<size_t>(c.prompts);
  // A batch without any signal would stop the run, so the search for the first group is longer.
  const int64_t most_rounds = 1 + c.resample;
  while (groups_.size() < wanted && tally_.rounds < (groups_.empty() ? 4 * most_rounds : most_rounds)) {
    ++tally_.rounds;
    std::vector<RolloutGroup> asked;
    for (size_t i = groups_.size(); i < wanted; ++i) asked.push_back(next_group(step, ordinal++, random));
    show_candidates(asked, step * c.prompts + ordinal - static_cast<int64_t>(asked.size()));
    sample_on_data_ranks(context_.engine, sampler_, asked, tally_.cost);
    for (RolloutGroup& g : asked) {
      ++tally_.groups;
      judged_ += static_cast<int64_t>(g.rollouts.size());
      failed_ += static_cast<int64_t>(g.rollouts.size() - g.rewards().size());
      add_bonuses(g, step);
      set_advantages(g, c.advantage);
      // Candidates make a problem easier: what such a group solves says nothing of its difficulty.
      if (!g.rewards().empty() && g.candidates == 0) curriculum_.report(g.draw, g.pass_rate());
      tally_.with_signal += g.signal() ? 1 : 0;
      (g.signal() || !c.need_signal ? groups_ : tally_.left_out).push_back(std::move(g));
    }
    require_sound_verifiers();
  }
  if (groups_.empty()) fail_without_signal();
}

void RlSource::require_sound_verifiers() const {
  if (failed_ * 100 <= judged_) return;
  std::string note, which;
  for (const auto* list : {&groups_, &tally_.left_out})
    for (const RolloutGroup& g : *list)
      for (const Rollout& r : g.rollouts)
        if (r.left_out && note.empty()) note = r.note, which = g.problem.id();
  throw Error(
      fmt::format("rl: verifiers failed for {} of {} replies of phase '{}', more than one in a hundred; "
                  "the last was problem '{}': {}",
                  failed_, judged_, context_.config().name, which, note),
      "mend the environment's verifier; replies that it cannot judge are left out of their groups");
}

void RlSource::fail_without_signal() const {
  std::map<std::string, std::pair<double, int64_t>> rates;
  for (const RolloutGroup& g : tally_.left_out) {
    auto& [sum, count] = rates[fmt::format("{} at difficulty {}", g.problem.environment, g.draw.difficulty)];
    sum += g.pass_rate(), ++count;
  }
  std::string text;
  for (const auto& [name, rate] : rates)
    text += fmt::format("\n  {}: pass rate {:.3f} over {} groups", name,
                        rate.first / static_cast<double>(rate.second), rate.second);
  throw Error(
      fmt::format("rl: none of {} groups of phase '{}' has replies of different reward, so there is nothing "
                  "to learn from:{}",
                  tally_.groups, context_.config().name, text),
      "where nothing is solved begin easier, or train longer before; where all is solved begin harder; "
      "or raise rl.samples");
}

void RlSource::calibrate(int64_t step) {
  calibrated_ = true;
  if (config().curriculum.calibrate == 0) return;
  std::vector<DifficultyCalibration> found;
  for (size_t e = 0; e < environments_.size(); ++e)
    found.emplace_back(Random(seed(), RandomPurpose::mixture,
                              hash64(fmt::format("calibrate {} {}", context_.config().name, e))));
  int64_t ordinal = kProblemsPerStep / 2;
  RolloutCost cost;
  for (int64_t round = 0; round < config().curriculum.calibrate; ++round) {
    std::vector<RolloutGroup> asked;
    for (size_t e = 0; e < environments_.size(); ++e) {
      const CurriculumEnvironment& c = curriculum_.environments()[e];
      const auto number = static_cast<uint64_t>(step * kProblemsPerStep + ordinal++);
      asked.push_back(new_group({e, found[e].propose(c.lowest, c.highest)}, number,
                                fmt::format("calibrate {}", number),
                                thinking_switch(config().thinking, ordinal)));
    }
    sample_on_data_ranks(context_.engine, sampler_, asked, cost);
    for (const RolloutGroup& g : asked) {
      const std::vector<double> rewards = g.rewards();
      const auto solved = std::count_if(rewards.begin(), rewards.end(), [](double r) { return r >= 1; });
      if (!rewards.empty())
        found[g.draw.environment].observe(g.draw.difficulty, solved, static_cast<int64_t>(rewards.size()));
    }
  }
  for (size_t e = 0; e < environments_.size(); ++e)
    curriculum_.set_difficulty(
        e, static_cast<int64_t>(std::lround(std::clamp(found[e].half_point(), -1e9, 1e9))));
}

void RlSource::fill_pool() {
  const RlFilterConfig& f = config().filter;
  RolloutOptions o = rollout_options(context_);
  o.samples = f.samples, o.routes = false;
  const RolloutSampler probe(context_.engine.model(), context_.data.tokenizer, template_, o);
  const std::vector<int64_t> modes =
      config().thinking == RolloutThinking::mixed ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0};
  RolloutCost cost;
  for (size_t e = 0; e < environments_.size() && f.pool > 0; ++e) {
    const CurriculumEnvironment& c = curriculum_.environments()[e];
    std::vector<RolloutGroup> asked;
    for (int64_t i = 0; i < f.pool; ++i)
      for (const int64_t mode : modes)
        asked.push_back(new_group({e, c.lowest + i % (c.highest - c.lowest + 1)}, static_cast<uint64_t>(i),
                                  fmt::format("filter {} {}", i, mode),
                                  thinking_switch(config().thinking, mode)));
    sample_on_data_ranks(context_.engine, probe, asked, cost);
    for (size_t i = 0; i < asked.size(); i += modes.size()) {
      std::vector<double> rates;
      for (size_t m = 0; m < modes.size(); ++m) rates.push_back(asked[i + m].pass_rate());
      pool_.offer(e, {asked[i].problem.number, asked[i].problem.difficulty}, rates, f.least, f.most);
    }
    if (pool_.kept(e) == 0)
      throw Error(
          fmt::format("rl.filter: none of {} problems of environment '{}' has a pass rate from {} to {}",
                      f.pool, c.name, f.least, f.most),
          "widen rl.filter.least and most, or ask for other difficulties");
    if (context_.engine.ranks().leads())
      log::info("phase '{}': {} of {} problems of '{}' have a pass rate from {} to {}",
                context_.config().name, pool_.kept(e), f.pool, c.name, f.least, f.most);
  }
}

void RlSource::observe(const StepOutcome& outcome, MetricRow& row) {
  const PolicyShift shift = PolicyShift::of(outcome.stats.sums);
  row.set("rl/kl", shift.kl);
  row.set("rl/ratio", shift.ratio);
  row.set("rl/r", shift.correlation);
  row.set("rl/masked", shift.masked);
  if (config().kl_reference > 0) row.set("rl/kl_reference", shift.reference);
  if (text_) row.set("rl/text_loss", shift.text);
  row.set("rl/fill", tally_.fill);
  if (update_of(step_) != 0) return;
  row.set("rl/compared", static_cast<double>(outcome.stats.compared));
  row.set("rl/unequal", static_cast<double>(outcome.stats.unequal));
  if (outcome.stats.unequal > 0 && config().exact == Exactness::require)
    throw Error(
        fmt::format(
            "rl: {} of {} recorded log-probabilities are not those that training computes (step {}, KL "
            "{:.3g}): replies were drawn by other weights, or by other kernels",
            outcome.stats.unequal, outcome.stats.compared, step_ + 1, shift.kl),
        "this is a defect of the program, or of memory; rl.exact = \"report\" counts them and continues");
  write_metrics(row);
  if (context_.engine.ranks().leads()) write_lines();
}

std::vector<const RolloutGroup*> RlSource::sampled_groups() const {
  std::vector<const RolloutGroup*> all;
  for (const auto* list : {&groups_, &tally_.left_out})
    for (const RolloutGroup& g : *list) all.push_back(&g);
  return all;
}

void RlSource::write_metrics(MetricRow& row) const {
  const std::vector<const RolloutGroup*> all = sampled_groups();
  add_rollout_metrics(all, context_.data.tokenizer.vocab_size(), config().repetition, row);
  add_aggregation_metrics(all, row);
  const auto groups = static_cast<double>(tally_.groups);
  row.set("rl/groups", groups);
  row.set("rl/groups_trained", static_cast<double>(groups_.size()));
  row.set("rl/signal", static_cast<double>(tally_.with_signal) / groups);
  if (config().length.reward > 0) {
    const auto gains = [](const RolloutGroup& g) {
      return std::any_of(g.rollouts.begin(), g.rollouts.end(), [](const Rollout& r) { return r.bonus > 0; });
    };
    row.set("rl/bonus_groups", static_cast<double>(std::count_if(groups_.begin(), groups_.end(), gains)) /
                                   static_cast<double>(groups_.size()));
  }
  row.set("rl/rounds", static_cast<double>(tally_.rounds));
  row.set("rl/sample_seconds", tally_.cost.sample_seconds);
  row.set("rl/judge_seconds", tally_.cost.judge_seconds);
  for (size_t e = 0; e < environments_.size(); ++e)
    row.set("rl/difficulty/" + curriculum_.environments()[e].name,
            static_cast<double>(curriculum_.difficulty(e)));
}

void RlSource::StepLines::append(
    FileSystem& fs, const std::string& path, int64_t step, const std::string& text,
    const std::function<int64_t(std::string_view, const std::string&)>& step_of) {
  if (!file) {
    // What a run that was killed after its last checkpoint has written comes again.
    keep_lines_until(fs, path, step, false, step_of);
    file = fs.open_append(path);
  }
  file->append(text.data(), text.size());
}

void RlSource::write_lines() {
  const std::string folder = context_.recipe().run.folder + "/";
  std::string text;
  const auto count = std::min(groups_.size(), static_cast<size_t>(config().record_groups));
  for (size_t g = 0; g < count; ++g)
    for (size_t i = 0; i < groups_[g].rollouts.size(); ++i)
      text +=
          to_json_line(line_of(groups_[g], i, static_cast<int64_t>(g), step_ + 1, context_.data.tokenizer)) +
          "\n";
  rollouts_.append(
      context_.fs, folder + kRolloutsFile, step_, text,
      [](std::string_view line, const std::string& where) { return parse_rollout_line(line, where).step; });
  text.clear();
  for (const RolloutCounts& counts : count_rollouts(sampled_groups(), step_ + 1))
    text += to_json_line(counts) + "\n";
  counts_.append(
      context_.fs, folder + kRolloutCountsFile, step_, text,
      [](std::string_view line, const std::string& where) { return parse_rollout_counts(line, where).step; });
}

std::string RlSource::state() const {
  nlohmann::ordered_json j = {{"curriculum", curriculum_.json()},
                              {"pool", pool_.json()},
                              {"calibrated", calibrated_},
                              {"judged", judged_},
                              {"failed", failed_},
                              {"step", step_}};
  // Between two updates on one batch its replies come from weights that are gone.
  if (step_ >= 0 && update_of(step_ + 1) != 0) j["groups"] = groups_json(groups_);
  return j.dump();
}

void RlSource::restore(const std::string& state, const std::string& where) {
  try {
    const auto j = nlohmann::json::parse(state);
    curriculum_.restore(j.at("curriculum"), where);
    pool_.restore(j.at("pool"), where);
    calibrated_ = j.at("calibrated");
    judged_ = j.at("judged"), failed_ = j.at("failed"), step_ = j.at("step");
    if (const auto groups = j.find("groups"); groups != j.end()) groups_ = parse_groups(*groups, where);
  } catch (const nlohmann::json::exception& e) {
    fail("'{}': the state 'source' of a phase of kind rl is damaged: {}", where, e.what());
  }
}

}  // namespace ingot

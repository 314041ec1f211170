// See decide.h.
#include "guard/decide.h"

#include <algorithm>

namespace ingot::guard {
namespace {

constexpr double kDay = 86'400;
constexpr size_t kRanksTold = 16;

std::vector<std::string> suspects_of(const Rule& rule, const Suspects& suspects) {
  const std::set<Fact> facts = rule.sign.facts();
  std::vector<std::string> all, named;
  for (const auto& [node, signs] : suspects) {
    all.push_back(node);
    if (std::any_of(signs.begin(), signs.end(), [&](Fact f) { return facts.contains(f); }))
      named.push_back(node);
  }
  return named.empty() ? all : named;
}

/// How often a rule was noted (all), or acted upon (`acts`), in the window before now.
int64_t count_of(double now, std::span<const PastMatch> past, const std::string& rule, const Times& window,
                 bool acts, const std::vector<std::string>& nodes = {}) {
  const auto share_a_node = [&](const std::vector<std::string>& other) {
    return std::find_first_of(nodes.begin(), nodes.end(), other.begin(), other.end()) != nodes.end();
  };
  return std::count_if(past.begin(), past.end(), [&](const PastMatch& p) {
    return p.rule == rule && (!acts || p.acted) && p.time > now - window.seconds &&
           (!window.per_node || share_a_node(p.nodes));
  });
}

std::string facts_text(const Situation& now) {
  std::string text;
  const Facts &facts = now.facts, quiet;
  for (const auto& [fact, name] : enum_names(Fact{}))
    if (facts[fact] != quiet[fact])
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, facts.text(fact));
  size_t told = 0;
  for (const std::string& rank : now.ranks)
    if (++told <= kRanksTold) text += "; " + rank;
  if (told > kRanksTold) text += fmt::format("; {} more", told - kRanksTold);
  return text;
}

/// Actions that a person must take instead of `d`'s; empty: it may act.
std::string refusal(const Decision& d, const Situation& now, std::span<const PastMatch> past,
                    const Scope& scope) {
  for (const Action a : d.actions)
    if (!contains(scope.alone, a) && a != Action::ask)
      return fmt::format("'{}' is outside what it may do alone", name_of(a));
  if (any_starts(d.actions) && now.facts[Fact::idle_restarts] >= static_cast<double>(scope.idle_restarts))
    return fmt::format("{} starts in a row did not go beyond the highest step",
                       now.facts[Fact::idle_restarts]);
  if (contains(d.actions, Action::exclude) || contains(d.actions, Action::exclude_failing)) {
    int64_t today = 0;
    for (const PastMatch& p : past)
      if (p.time > now.now - kDay) today += p.excluded;
    const auto more = static_cast<int64_t>(d.nodes.size());
    if (today + more > scope.nodes_per_day)
      return fmt::format("{} nodes were excluded in 24 h, {} more are beyond scope.nodes_per_day = {}", today,
                         more, scope.nodes_per_day);
  }
  return "";
}

}  // namespace

Judgement decide(std::span<const Rule> rules, const Situation& now, std::span<const PastMatch> past,
                 const Scope& scope) {
  Judgement result;
  const RuleCount counts = [&](const std::string& rule, double seconds) {
    return count_of(now.now, past, rule, {.count = 1, .seconds = seconds}, false);
  };
  for (const Rule& rule : rules) {
    if (!rule.sign.holds(now.facts, counts)) continue;
    result.matching.insert(rule.name);
    if (result.decision || result.waits)
      continue;  // later ones only so that they are known as old at the next look
    const bool appeared = !now.matching_before.contains(rule.name);
    const std::vector<std::string> nodes = suspects_of(rule, now.suspects);
    if (rule.sure == Sureness::probable) {
      const int64_t before = count_of(now.now, past, rule.name, rule.sure_after, false, nodes);
      if (before + (appeared ? 1 : 0) < rule.sure_after.count) {
        if (appeared) result.noted.push_back({rule.name, now.now, nodes, false});
        continue;
      }
    }
    const bool tells = std::all_of(rule.act.begin(), rule.act.end(), only_tells),
               waits = contains(rule.act, Action::wait);
    result.waits |= waits;
    if ((tells || waits) && !appeared) continue;  // said before
    Decision d{rule.name, rule.act, nodes, facts_text(now)};
    if (tells) {
      result.alerts.push_back(std::move(d));
      continue;
    }
    if (!waits && rule.at_most.given() &&
        count_of(now.now, past, rule.name, rule.at_most, true, nodes) >= rule.at_most.count) {
      d.actions = rule.then;
      d.reason += "; beyond its limit";
    }
    if (const std::string why = waits ? "" : refusal(d, now, past, scope); !why.empty()) {
      d.reason += "; " + why;
      d.actions = {Action::save_evidence, Action::ask};
    }
    result.decision = std::move(d);
  }
  return result;
}

}  // namespace ingot::guard

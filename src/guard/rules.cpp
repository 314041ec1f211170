// See rules.h.
#include "guard/rules.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"

namespace ingot::guard {
namespace {

/// What is wrong with the order of actions; empty: nothing.
std::string order_problem(const std::vector<Action>& actions) {
  bool tested = false;
  for (const Action& a : actions) {
    if (a == Action::wait && actions.size() > 1) return "'wait' stands alone";
    if (a == Action::exclude_failing && !tested) return "'exclude_failing' needs 'burn_in' before it";
    if ((starts_job(a) || a == Action::ask) && &a != &actions.back())
      return fmt::format("'{}' comes last", name_of(a));
    tested |= a == Action::burn_in;
  }
  return "";
}

/// Whether `earlier` holds wherever `later` can. False where that cannot be told, or where one is no sign.
bool covers(const std::string& earlier, const std::string& later) {
  if (earlier == later) return true;
  try {
    return Expression::parse(later).contradiction().empty() &&
           !Expression::parse(fmt::format("({}) and not ({})", later, earlier)).contradiction().empty();
  } catch (const Error&) {
    return false;
  }
}

/// `names`: of all rules.
void check_rule(const Rule& r, const std::set<std::string>& names, const std::string& field,
                ConfigErrors& errors) {
  const auto tried = [&](const char* name, const auto& f) {
    try {
      f();
    } catch (const Error& e) {
      errors.add(field + "." + name, "{}", e.what());
    }
  };
  if (r.name.empty()) errors.add(field, "a rule needs a name");
  if (r.when.empty()) errors.add(field, "rule '{}' needs a sign: when = \"...\"", r.name);
  if (r.act.empty()) errors.add(field, "rule '{}' needs actions: act = [...]", r.name);
  if (!r.when.empty())
    tried("when", [&] {
      const Expression sign = Expression::parse(r.when);
      const std::string never = sign.contradiction();
      if (!never.empty()) fail("the rule can never match: {}", never);
      for (const std::string& name : sign.counted())
        if (!names.contains(name)) fail("count() names '{}', which is no rule", name);
    });
  for (const auto& [name, actions] : {std::pair("act", &r.act), {"then", &r.then}})
    if (const std::string problem = order_problem(*actions); !problem.empty())
      errors.add(field + "." + name, "{}", problem);
  if ((r.sure == Sureness::probable) == r.repeats.empty())
    errors.add(field, "rule '{}': a probable sign states its repeats, and no other does", r.name);
  if (!r.repeats.empty()) tried("repeats", [&] { parse_times(r.repeats); });
  if (!r.limit.empty()) tried("limit", [&] { parse_times(r.limit); });
  if (r.limit.empty() && any_starts(r.act))
    errors.add(field, "rule '{}' starts the job and has no limit: limit = \"3 in 24h\"", r.name);
  if (r.sure == Sureness::unknown && r.limit.empty() && !contains(r.act, Action::ask))
    errors.add(field, "rule '{}' has an unknown cause: its actions end with ask, or it has a limit", r.name);
  if (r.limit.empty() && !r.then.empty()) errors.add(field, "rule '{}': 'then' needs a limit", r.name);
  if (any_starts(r.then))
    errors.add(field + ".then", "beyond its limit a rule does not start the job: ask, or exclude");
}

}  // namespace

bool any_starts(const std::vector<Action>& actions) {
  return std::any_of(actions.begin(), actions.end(), starts_job);
}

std::string list_of(const std::vector<Action>& actions) {
  std::string text;
  for (const Action a : actions) text += fmt::format("{}{}", text.empty() ? "" : ", ", name_of(a));
  return text;
}

Times parse_times(std::string_view text) {
  Times times;
  std::string_view rest = text;
  constexpr std::string_view kPerNode = " per node", kIn = " in ";
  if (rest.ends_with(kPerNode)) times.per_node = true, rest.remove_suffix(kPerNode.size());
  const size_t in = rest.find(kIn);
  if (in != rest.npos) {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + in, times.count);
    if (error == std::errc() && end == rest.data() + in && times.count >= 1 && times.count <= 1'000'000) {
      times.seconds = parse_quantity(rest.substr(in + kIn.size()));
      if (times.seconds > 0) return times;
    }
  }
  fail("expected a number of times in a window, such as \"3 in 24h\" or \"3 in 24h per node\", found '{}'",
       text);
}

void RuleFile::validate(ConfigErrors& errors) const {
  if (rules.empty()) errors.add("rules", "there are no rules");
  std::set<std::string> names, before;
  for (const Rule& r : rules) names.insert(r.name);
  std::vector<const Rule*> deciding;
  for (size_t i = 0; i < rules.size(); ++i) {
    const Rule& r = rules[i];
    const std::string field = fmt::format("rules.{}", i);
    check_rule(r, names, field, errors);
    if (!before.insert(r.name).second) errors.add(field, "two rules are called '{}'", r.name);
    const auto covering = std::find_if(deciding.begin(), deciding.end(),
                                       [&](const Rule* other) { return covers(other->when, r.when); });
    if (covering != deciding.end())
      errors.add(field, "rule '{}' is never asked: '{}' before it decides whenever it holds", r.name,
                 (*covering)->name);
    const bool passes_on = std::all_of(r.act.begin(), r.act.end(), only_tells);
    if (!passes_on && r.sure == Sureness::certain) deciding.push_back(&r);
  }
}

std::vector<Rule> parse_rules(std::string_view text, const std::string& source) {
  std::vector<Rule> rules = read_config<RuleFile>(parse_toml(text, source)).rules;
  for (Rule& r : rules) {
    r.sign = Expression::parse(r.when);
    if (!r.repeats.empty()) r.sure_after = parse_times(r.repeats);
    if (!r.limit.empty()) r.at_most = parse_times(r.limit);
    if (r.then.empty()) r.then = {Action::save_evidence, Action::ask};
  }
  return rules;
}

std::vector<Rule> load_rules(const std::string& path) {
  return parse_rules(read_at_most(real_file_system(), path, 1 << 20), path);
}

}  // namespace ingot::guard

// See job_file.h.
#include "guard/job_file.h"

#include <algorithm>
#include <iterator>

#include "base/command.h"
#include "base/error.h"
#include "base/file_system.h"
#include "guard/command_templates.h"

namespace ingot::guard {
namespace {

std::string window_of(const Times& t) {
  return fmt::format("{} in {:g} s{}", t.count, t.seconds, t.per_node ? " per node" : "");
}

std::string when_it_acts(const Rule& r) {
  if (r.sure == Sureness::probable) return "when its sign has appeared " + window_of(r.sure_after);
  return r.sure == Sureness::certain ? "at once" : "at once, and ends with a person";
}

/// With `scope` also which actions a person is asked for.
std::string describe(const std::vector<Rule>& rules, const Scope* scope) {
  std::string text;
  for (size_t i = 0; i < rules.size(); ++i) {
    const Rule& r = rules[i];
    text += fmt::format("{}. '{}'\n   when   {}\n", i + 1, r.name, r.when);
    for (const Fact f : r.sign.facts())
      text += fmt::format("          {}: {}\n", info_of(f).name, info_of(f).doc);
    text += fmt::format("   acts   {}: {}\n", when_it_acts(r), list_of(r.act));
    if (r.at_most.given())
      text += fmt::format("   limit  {}; beyond it: {}\n", window_of(r.at_most), list_of(r.then));
    if (scope == nullptr) continue;
    std::vector<Action> asked;
    std::copy_if(r.act.begin(), r.act.end(), std::back_inserter(asked),
                 [&](Action a) { return a != Action::ask && !contains(scope->alone, a); });
    if (!asked.empty())
      text += fmt::format("   asks   a person instead: scope.alone does not have {}\n", list_of(asked));
  }
  return text;
}

/// What is wrong with a job whose file could be read, a sentence each: programs that cannot be started.
std::vector<std::string> defects(const JobFile& job) {
  std::vector<std::string> found;
  const auto need = [&](const char* key, const std::vector<std::string>& words) {
    if (!words.empty() && !can_start(words[0]))
      found.push_back(fmt::format("{}: there is no program '{}' here", key, words[0]));
  };
  need("burn_in", job.burn_in);
  if (job.cluster.empty()) {
    need("command", job.command);  // a cluster's nodes may have what this machine has not
    need("command", {"setsid"}), need("command", {"flock"});
    return found;
  }
  const auto t = load_config<CommandTemplates>(job.cluster);
  if (!job.options.empty() && !contains(t.start, std::string("{options}")))
    found.push_back(fmt::format("options: 'start' of '{}' has no word {{options}}", job.cluster));
  for (const auto& [key, words] : {std::pair("start", &t.start),
                                   {"find", &t.find},
                                   {"state", &t.state},
                                   {"stop", &t.stop},
                                   {"kill", &t.kill},
                                   {"nodes", &t.nodes},
                                   {"exclude", &t.exclude},
                                   {"burn_in", &t.burn_in}})
    need(key, *words);
  return found;
}

}  // namespace

void JobFile::validate(ConfigErrors& errors) const {
  if (run.empty()) errors.add("run", "the job needs the folder of its run");
  if (command.empty()) errors.add("command", "the job needs a command: command = [\"ingot\", \"run\", ...]");
  if (cluster.empty() && !options.empty()) errors.add("options", "they are a cluster's, and there is none");
  if (!cluster.empty() && !burn_in.empty()) errors.add("burn_in", "the cluster's templates have their own");
}

std::string check_file(const std::string& path) {
  const ConfigNode tree = parse_toml(read_at_most(real_file_system(), path, 1 << 20), path);
  const ConfigNode* list = tree.find("rules");
  if (list != nullptr && list->kind == ConfigNode::Kind::array) {
    const std::vector<Rule> rules = load_rules(path);
    return describe(rules, nullptr) + fmt::format("'{}': {} rules, all can match\n", path, rules.size());
  }
  const auto job = read_config<JobFile>(tree);
  const std::vector<Rule> rules = load_rules(job.rules);
  std::string wrong;
  for (const std::string& d : defects(job)) wrong += "\n  " + d;
  if (!wrong.empty())
    throw Error(fmt::format("the job '{}' cannot work:{}", path, wrong), "mend the file, and check again");
  return describe(rules, &job.scope) +
         fmt::format(
             "'{}': {} rules, all can match; it excludes at most {} nodes in 24 h, and asks after {} "
             "restarts that reach no new step\n",
             path, rules.size(), job.scope.nodes_per_day, job.scope.idle_restarts);
}

}  // namespace ingot::guard

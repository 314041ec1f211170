// See command_adaptor.h.
#include "guard/command_adaptor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/log.h"

namespace ingot::guard {
namespace {

/// What `ingot burnin` says where a test failed. Without it a command has not tested: no node is to blame.
constexpr const char* kFailedTests = " tests failed";

constexpr double kQuiet = 5;  ///< seconds without news of ranks that end a job which is said to have ended

/// Placeholders of each template.
const std::map<std::string, std::set<std::string>>& placeholders() {
  static const std::map<std::string, std::set<std::string>> all{
      {"start", {"script", "name", "log", "run", "excluded", "options"}},
      {"find", {"name"}},
      {"state", {"id", "name"}},
      {"stop", {"id", "name"}},
      {"kill", {"id", "name"}},
      {"nodes", {}},
      {"exclude", {"node"}},
      {"burn_in", {"node", "run"}}};
  return all;
}

/// Names between braces.
std::vector<std::string> braces_in(const std::string& word) {
  std::vector<std::string> names;
  for (size_t at = 0; (at = word.find('{', at)) != word.npos;) {
    const size_t end = word.find('}', at);
    if (end == word.npos) break;
    names.push_back(word.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return names;
}

bool has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string last_line(const std::string& text) {
  std::string line, last;
  for (std::istringstream lines(text); std::getline(lines, line);)
    if (line.find_first_not_of(" \t\r") != line.npos) last = line;
  return last;
}

std::string first_word(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t");
  return begin == line.npos ? "" : line.substr(begin, line.find_first_of("; \t\r", begin) - begin);
}

/// Whether it is a word without anything that a shell, a path or an option could read otherwise.
bool is_plain(const std::string& word) {
  return !word.empty() && word.size() <= 200 && word[0] != '-' &&
         std::all_of(word.begin(), word.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
         });
}

/// The job's id, the first word of the last line; empty: there is none.
std::string id_in(const std::string& text) {
  const std::string word = first_word(last_line(text));
  return is_plain(word) ? word : "";
}

/// Names of hosts come from files of the run, which anything may have written.
const std::string& checked(const std::string& node) {
  if (!is_plain(node)) fail("no command is given the node name '{}'", node);
  return node;
}

}  // namespace

void CommandTemplates::validate(ConfigErrors& errors) const {
  for (const auto& [name, words] : commands()) {
    const bool needed = words != &nodes && words != &exclude && words != &burn_in;
    if (needed && words->empty()) errors.add(name, "a cluster needs the command '{}'", name);
    for (const std::string& word : *words)
      for (const std::string& placeholder : braces_in(word)) {
        const auto& known = placeholders().at(name);
        if (!known.contains(placeholder))
          errors.add(name, "'{}' has no placeholder {{{}}}; it has {}", name, placeholder,
                     fmt::join(known, ", "));
        if (placeholder == "options" && word != "{options}")
          errors.add(name, "{{options}} is a word of its own");
      }
  }
  const auto names = [](const Words& words, const std::string& placeholder) {
    return std::any_of(words.begin(), words.end(),
                       [&](const std::string& w) { return w.find("{" + placeholder + "}") != w.npos; });
  };
  for (const auto& [name, words, placeholder] : {std::tuple("start", &start, "script"),
                                                 {"start", &start, "name"},
                                                 {"find", &find, "name"},
                                                 {"exclude", &exclude, "node"},
                                                 {"burn_in", &burn_in, "node"}})
    if (!words->empty() && !names(*words, placeholder))
      errors.add(name, "'{}' does not say {{{}}}", name, placeholder);
  for (const auto& [name, words] : {std::pair("state", &state), {"stop", &stop}, {"kill", &kill}})
    if (!words->empty() && !names(*words, "id") && !names(*words, "name"))
      errors.add(name, "'{}' says neither {{id}} nor {{name}}", name);
  if (!start.empty() && exclude.empty() && !names(start, "excluded"))
    errors.add(
        "start",
        "'start' does not say {{excluded}}, and there is no 'exclude': a node would never be left out");
  if (running.empty() || ended.empty()) errors.add("state", "it needs words: running = [...], ended = [...]");
  if (!nodes.empty() && down.empty()) errors.add("nodes", "it needs words for lost nodes: down = [...]");
}

Words expand(const Words& words, const std::map<std::string, std::string>& values, const Words& options) {
  Words result;
  for (const std::string& word : words) {
    if (word == "{options}") {
      result.insert(result.end(), options.begin(), options.end());
      continue;
    }
    std::string text;
    bool empty = false;
    for (size_t at = 0; at < word.size();) {
      const size_t end = word[at] == '{' ? word.find('}', at) : word.npos;
      const auto found = end == word.npos ? values.end() : values.find(word.substr(at + 1, end - at - 1));
      if (found == values.end()) {
        text += word[at++];
        continue;
      }
      empty = empty || found->second.empty();
      text += found->second;
      at = end + 1;
    }
    if (!empty) result.push_back(std::move(text));
  }
  return result;
}

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

CommandAdaptor::CommandAdaptor(const std::string& run_folder, Words command, CommandTemplates templates,
                               Words options, double begin_seconds)
    : FolderAdaptor(std::filesystem::absolute(run_folder).lexically_normal(), begin_seconds),
      command_(std::move(command)),
      templates_(std::move(templates)),
      options_(std::move(options)) {}

std::string CommandAdaptor::name_of_start(int64_t number) const {
  return fmt::format("ingot-{:08x}-{}", static_cast<uint32_t>(hash64(run_)), number);
}

CommandAdaptor::Job CommandAdaptor::job() const {
  const auto j = nlohmann::json::parse(read_small(path("job.json")), nullptr, false);
  if (!j.is_object() || !j.contains("id") || !j["id"].is_string()) return {};
  return {whole(j, "number", 0), j["id"].get<std::string>()};
}

void CommandAdaptor::record(const Job& job) {
  write_file_atomically(real_file_system(), path("job.json"),
                        fmt::format("{{\"number\": {}, \"id\": \"{}\"}}\n", job.number, job.id));
}

CommandResult CommandAdaptor::run(const char* what, const Words& words) {
  return Command(words, path(fmt::format("command-{}.txt", what)), templates_.seconds).wait();
}

void CommandAdaptor::note(const std::string& what, const std::string& trouble) {
  if (trouble.empty()) {
    noted_.erase(what);
  } else if (noted_.try_emplace(what, trouble).second) {
    log::warn("the cluster's '{}' is not believed: {}", what, trouble);
    alert(fmt::format("the cluster's '{}' is not believed: {}", what, trouble));
  }
}

std::string CommandAdaptor::find(int64_t number) {
  const std::string name = name_of_start(number);
  const CommandResult r = run("find", expand(templates_.find, {{"name", name}}, {}));
  if (!r.worked())
    fail(
        "start {} may have happened, and 'find' gave no answer ({}): see whether a job '{}' exists, then "
        "answer "
        "restart",
        number, r.text(), name);
  return id_in(r.output);
}

/// Asked to end, the script asks the job by SIGUSR1: launchers of ranks (srun, mpirun) pass it on, and end
/// the ranks where SIGTERM reaches them. Runs once, however often it is submitted; what it leaves behind
/// says how the job ended.
void CommandAdaptor::write_script(const StartRequest& request) {
  std::string words;
  for (const std::string& word : job_command(command_, request)) words += " " + quoted(word);
  const std::string n = std::to_string(request.number), end = quoted(path("end-" + n + ".json"));
  write_file_atomically(
      real_file_system(), path("job-" + n + ".sh"),
      fmt::format("#!/bin/sh\n"
                  "# Start {0} of a job of ingot guard.\n"
                  "mkdir {1} || exit 75  # this start has run\n"
                  "trap asked=1 TERM INT HUP USR1\n"
                  "INGOT_GUARD_START={0}{2} >>{3} 2>&1 &\n"
                  "job=$!\n"
                  "trap 'kill -USR1 $job 2>/dev/null' TERM INT HUP USR1\n"
                  "[ -z \"$asked\" ] || kill -USR1 $job\n"
                  "wait $job; code=$?\n"
                  "while kill -0 $job 2>/dev/null; do wait $job; code=$?; done\n"
                  "echo \"{{\\\"code\\\": $code}}\" >{4}.tmp && mv {4}.tmp {4}\n"
                  "exit $code\n",
                  request.number, quoted(path("begun-" + n)), words, quoted(path("job-" + n + ".log")), end));
}

void CommandAdaptor::start(const StartRequest& request) {
  const Job now = job();
  if (now.number >= request.number) return;
  if (request.fewer) fail("{}", kNoFewer);
  for (const std::string& node : request.excluded) checked(node);
  const std::string intention = path(fmt::format("start-{}.json", request.number));
  if (real_file_system().exists(intention)) {
    if (const std::string id = find(request.number); !id.empty()) return record({request.number, id});
    if (real_file_system().exists(path(fmt::format("begun-{}", request.number))))
      return record({request.number, "unknown"});
  }
  for (const std::string& node : request.excluded) {
    const std::string done = path(fmt::format("excluded-{:016x}", hash64(node)));
    if (templates_.exclude.empty() || real_file_system().exists(done)) continue;
    const CommandResult r = run("exclude", expand(templates_.exclude, {{"node", node}}, {}));
    note("exclude " + node, r.worked() ? "" : r.text());  // the start leaves it out all the same
    if (r.worked()) write_file_atomically(real_file_system(), done, node + "\n");
  }
  write_script(request);
  write_file_atomically(real_file_system(), intention, fmt::format("{{\"number\": {}}}\n", request.number));
  const std::string n = std::to_string(request.number);
  const CommandResult r =
      run("start", expand(templates_.start,
                          {{"script", path("job-" + n + ".sh")},
                           {"name", name_of_start(request.number)},
                           {"log", path("batch-" + n + ".log")},
                           {"run", run_},
                           {"excluded", fmt::format("{}", fmt::join(request.excluded, ","))}},
                          options_));
  std::string id = r.worked() ? id_in(r.output) : "";
  if (id == now.id) id.clear();  // that is the start before
  if (id.empty()) id = find(request.number);
  if (id.empty())
    fail("the cluster did not start the job: {}", r.worked() ? "it named no new job: " + r.text() : r.text());
  record({request.number, id});
}

void CommandAdaptor::stop(bool at_once) {
  const Job now = job();
  const CommandResult r =
      run(at_once ? "kill" : "stop", expand(at_once ? templates_.kill : templates_.stop,
                                            {{"id", now.id}, {"name", name_of_start(now.number)}}, {}));
  note(at_once ? "kill" : "stop", r.worked() ? "" : r.text());
  again_.reset();
  if (!r.worked()) again_ = at_once;
  stopped_ = seen_.now;
}

void CommandAdaptor::hear_state(const CommandResult& r) {
  const std::string word = first_word(last_line(r.output));
  claim_ = !r.worked()                     ? Claim::none
           : has(templates_.waiting, word) ? Claim::waiting
           : has(templates_.running, word) ? Claim::running
           : has(templates_.ended, word)   ? Claim::ended
                                           : Claim::none;
  note("state", claim_ != Claim::none ? ""
                : r.worked()          ? fmt::format("'{}' is no state", word.substr(0, 200))
                                      : r.text());
  if (claim_ == Claim::ended) {
    if (ended_since_ < 0) ended_since_ = seen_.now;
    return;
  }
  ended_since_ = -1;
  note("end of the job", "");
}

void CommandAdaptor::hear_nodes(const CommandResult& r) {
  note("nodes", r.worked() ? "" : r.text());
  if (!r.worked()) return;
  up_.clear(), down_.clear();
  nodes_heard_ = seen_.now;
  std::string line, name, word;
  for (std::istringstream lines(r.output); std::getline(lines, line);)
    if (std::istringstream words(line); words >> name >> word)
      (has(templates_.down, word) ? down_ : up_).insert(name);
}

void CommandAdaptor::ask_cluster(const Job& now) {
  if (state_)
    if (const auto r = state_->poll()) hear_state(*r), state_.reset();
  if (nodes_)
    if (const auto r = nodes_->poll()) hear_nodes(*r), nodes_.reset();
  if (now.number != claim_start_) {
    claim_start_ = now.number, claim_ = Claim::none, ended_since_ = -1, asked_ = -1e9;
    state_.reset();
  }
  if (seen_.now - asked_ < templates_.every) return;
  asked_ = seen_.now;
  if (!state_)
    state_ = std::make_unique<Command>(
        expand(templates_.state, {{"id", now.id}, {"name", name_of_start(now.number)}}, {}),
        path("command-state.txt"), templates_.seconds);
  if (!nodes_ && !templates_.nodes.empty())
    nodes_ = std::make_unique<Command>(expand(templates_.nodes, {}, {}), path("command-nodes.txt"),
                                       templates_.seconds);
}

JobState CommandAdaptor::judge(const Job& now) {
  if (real_file_system().exists(path(fmt::format("end-{}.json", now.number)))) return JobState::ended;
  const JobState alive = seen_.start_step < 0 ? JobState::starting : JobState::running;
  const bool begun = real_file_system().exists(path(fmt::format("begun-{}", now.number)));
  if (claim_ != Claim::ended) return begun || seen_.start_step >= 0 ? alive : JobState::absent;
  const bool writes = std::any_of(seen_.nodes.begin(), seen_.nodes.end(), [&](const NodeReport& n) {
    return n.rank >= 0 && reader_.ages_at(seen_.now) - n.age > ended_since_ + 2;
  });
  if (writes) {
    note("end of the job", "its ranks still write");
    ended_since_ = seen_.now;
  }
  return seen_.now - ended_since_ >= kQuiet ? JobState::ended : begun ? alive : JobState::absent;
}

const Observation& CommandAdaptor::observe() {
  look_at_clocks();
  const Job now = job();
  if (now.number == 0) {
    seen_.job = JobState::absent;
    seen_.start = 0;
    return seen_;
  }
  ask_cluster(now);
  reader_.read(seen_, now.number, path(fmt::format("job-{}.log", now.number)));
  if (seen_.start != now.number) hosts_.clear();
  seen_.job = judge(now);
  seen_.start = seen_.job == JobState::absent ? now.number - 1 : now.number;
  for (const NodeReport& n : seen_.nodes) hosts_.insert(n.name);
  // An answer is good until the next one should have come.
  const bool known = seen_.now - nodes_heard_ <= 2 * (templates_.every + templates_.seconds);
  for (const std::string& host : hosts_)
    if (known && (down_.contains(host) || up_.contains(host)))
      seen_.nodes.push_back({.name = host, .age = 0, .is_down = down_.contains(host)});
  if (again_ && seen_.job != JobState::ended && seen_.now - stopped_ >= templates_.every) stop(*again_);
  if (seen_.job == JobState::ended) look_at_end(now.number);
  return seen_;
}

void CommandAdaptor::burn_in(const std::vector<std::string>& nodes) {
  if (!tests_.empty() || templates_.burn_in.empty()) return;
  for (const std::string& node : nodes) checked(node);
  for (const std::string& node : nodes)
    tests_[node] = std::make_unique<Command>(expand(templates_.burn_in, {{"node", node}, {"run", run_}}, {}),
                                             path(fmt::format("burn-in-{:016x}.txt", hash64(node))),
                                             templates_.burn_in_seconds);
}

std::optional<std::vector<std::string>> CommandAdaptor::burned_in() {
  for (const auto& [node, test] : tests_)
    if (!test->poll()) return std::nullopt;
  std::vector<std::string> failing;
  for (const auto& [node, test] : std::exchange(tests_, {})) {
    const CommandResult r = test->wait();
    if (r.worked()) continue;
    if (!r.late && !r.says(kFailedTests)) fail("the burn-in of '{}' did not run: {}", node, r.text());
    log::warn("the burn-in of '{}' failed, {}", node, r.text());
    failing.push_back(node);
  }
  return failing;
}

}  // namespace ingot::guard

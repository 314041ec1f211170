// See command_adaptor.h.
#include "guard/command_adaptor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/foreign_json.h"
#include "base/hash.h"
#include "base/host_name.h"
#include "base/log.h"

namespace ingot::guard {
namespace {

/// What `ingot burnin` says where a test failed. Without it a command has not tested: no node is to blame.
constexpr const char* kFailedTests = " tests failed";

constexpr double kQuiet = 5;  ///< seconds without news of ranks that end a job which is said to have ended

/// The first word of the last line that has one.
std::string answer_in(const std::string& text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  if (end == text.npos) return "";
  const size_t line = text.rfind('\n', end) + 1;  // 0 where it is the only one
  const size_t begin = text.find_first_not_of(" \t\r", line);
  return text.substr(begin, std::min(end + 1, text.find_first_of("; \t\r", begin)) - begin);
}

/// Whether it is a word without anything that a shell, a path or an option could read otherwise.
bool is_plain(const std::string& word) {
  return !word.empty() && word.size() <= 200 && word[0] != '-' &&
         std::all_of(word.begin(), word.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
         });
}

/// The job's id; empty: there is none.
std::string id_in(const std::string& text) {
  const std::string word = answer_in(text);
  return is_plain(word) ? word : "";
}

/// Names of hosts come from files of the run, which anything may have written.
const std::string& checked(const std::string& node) {
  if (!is_plain(node)) fail("no command is given the node name '{}'", node);
  return node;
}

/// For note(); empty where it worked.
std::string trouble_of(const CommandResult& result) {
  return result.worked() ? "" : result.text();
}

}  // namespace

CommandAdaptor::CommandAdaptor(const std::string& run_folder, Words command, CommandTemplates templates,
                               Words options, double begin_seconds)
    : FolderAdaptor(std::filesystem::absolute(run_folder).lexically_normal()),
      command_(std::move(command)),
      templates_(std::move(templates)),
      options_(std::move(options)),
      offset_(begin_seconds - monotonic_seconds()),
      reader_(run_) {}

std::string CommandAdaptor::name_of_start(int64_t number) const {
  return fmt::format("ingot-{:08x}-{}", static_cast<uint32_t>(hash64(run_)), number);
}

Words CommandAdaptor::words_for(const Words& words, const Job& job) const {
  return expand(words, {{"id", job.id}, {"name", name_of_start(job.number)}, {"run", run_}});
}

std::unique_ptr<Command> CommandAdaptor::begun(const std::string& what, const Words& words, double seconds) {
  return std::make_unique<Command>(words, path(fmt::format("{}.txt", what)), seconds);
}

CommandResult CommandAdaptor::run(const std::string& what, const Words& words) {
  return begun("command-" + what, words, templates_.seconds)->wait();
}

void CommandAdaptor::note(const std::string& what, const std::string& trouble) {
  if (trouble.empty()) {
    noted_.erase(what);
  } else if (noted_.insert(what).second) {
    log::warn("'{}' is not believed: {}", what, trouble);
    alert(fmt::format("'{}' is not believed: {}", what, trouble));
  }
}

std::string CommandAdaptor::find(int64_t number) {
  const CommandResult r = run("find", words_for(templates_.find, {.number = number}));
  if (!r.worked())
    fail(
        "start {} may have happened, and 'find' gave no answer ({}): see whether a job '{}' exists, then "
        "answer restart",
        number, r.text(), name_of_start(number));
  return id_in(r.output);
}

void CommandAdaptor::start(const StartRequest& request) {
  const int64_t number = request.number;
  if (job().number >= number) return;  // begun by a guard that was killed
  if (request.fewer)
    fail("a start on fewer nodes was asked for: change the job's command or options, then answer restart");
  for (const std::string& node : request.excluded) checked(node);
  if (!templates_.can_exclude() && !request.excluded.empty() && std::exchange(refused_, number) != number)
    fail(
        "'{}' failed its test or was lost, and the job has no other machine; mend it, or run the job on "
        "another one, then answer restart",
        fmt::join(request.excluded, "', '"));
  const std::string intention = fmt::format("start-{}.json", number);
  if (has(intention)) {
    if (const std::string id = find(number); !id.empty()) return record({number, id});
    if (has(fmt::format("begun-{}", number))) return record({number, "unknown"});
  }
  for (const std::string& node : request.excluded) {
    const std::string done = fmt::format("excluded-{:016x}", hash64(node));
    if (templates_.exclude.empty() || has(done)) continue;
    const CommandResult r = run("exclude", expand(templates_.exclude, {{"node", node}}));
    note("exclude " + node, trouble_of(r));  // the start leaves it out all the same
    if (r.worked()) write_file_atomically(real_file_system(), path(done), node + "\n");
  }
  const std::string script = write_script(request, command_, templates_.signal);
  write_file_atomically(real_file_system(), path(intention), fmt::format("{{\"number\": {}}}\n", number));
  const CommandResult r =
      run("start", expand(templates_.start,
                          {{"script", script},
                           {"name", name_of_start(number)},
                           {"log", path(fmt::format("batch-{}.log", number))},
                           {"run", run_},
                           {"excluded", fmt::format("{}", fmt::join(request.excluded, ","))}},
                          options_));
  std::string id = r.worked() ? id_in(r.output) : "";
  if (id == job().id) id.clear();  // that is the start before
  if (id.empty()) id = find(number);
  if (id.empty())
    fail("the job was not started: {}", r.worked() ? "it named no new job: " + r.text() : r.text());
  record({number, id});
}

void CommandAdaptor::stop(bool at_once) {
  const CommandResult r =
      run(at_once ? "kill" : "stop", words_for(at_once ? templates_.kill : templates_.stop, job()));
  note(at_once ? "kill" : "stop", trouble_of(r));
  again_.reset();
  if (!r.worked()) again_ = at_once;
  stopped_ = seen_.now;
  state_.reset(), asked_ = -1e9;  // what it did before is old
}

void CommandAdaptor::hear_state(const CommandResult& r) {
  const std::string word = answer_in(r.output);
  const bool lives = contains(templates_.waiting, word) || contains(templates_.running, word);
  const bool ended = r.worked() && !lives && contains(templates_.ended, word);
  note("state", !r.worked()      ? r.text()
                : lives || ended ? ""
                                 : fmt::format("'{}' is no state", word.substr(0, 200)));
  if (!ended) note("end of the job", "");
  ended_since_ = !ended ? -1 : ended_since_ < 0 ? seen_.now : ended_since_;
}

void CommandAdaptor::hear_nodes(const CommandResult& r) {
  note("nodes", trouble_of(r));
  if (!r.worked()) return;
  is_down_.clear();
  nodes_heard_ = seen_.now;
  std::string line, name, word;
  for (std::istringstream lines(r.output); std::getline(lines, line);)
    if (std::istringstream words(line); words >> name >> word)
      is_down_[name] |= contains(templates_.down, word);
}

void CommandAdaptor::ask_commands(const Job& now) {
  if (const auto r = state_ ? state_->poll() : std::nullopt) hear_state(*r), state_.reset();
  if (const auto r = nodes_ ? nodes_->poll() : std::nullopt) hear_nodes(*r), nodes_.reset();
  if (now.number != asked_of_) {
    asked_of_ = now.number, ended_since_ = -1, asked_ = -1e9;
    state_.reset();
  }
  const bool ends = templates_.trusted && ended_since_ < 0 && has(end_of(now.number));
  if (seen_.now - asked_ < templates_.every && !ends) return;
  asked_ = seen_.now;
  if (!state_) state_ = begun("command-state", words_for(templates_.state, now), templates_.seconds);
  if (!nodes_ && !templates_.nodes.empty())
    nodes_ = begun("command-nodes", templates_.nodes, templates_.seconds);
}

JobState CommandAdaptor::state_of(const Job& now) {
  if (templates_.trusted ? ended_since_ >= 0 : has(end_of(now.number))) return JobState::ended;
  const JobState alive = seen_.first.start_step < 0 ? JobState::starting : JobState::running;
  const bool begun = has(fmt::format("begun-{}", now.number));
  if (ended_since_ < 0) return begun || seen_.first.start_step >= 0 ? alive : JobState::absent;
  const bool writes = std::any_of(seen_.nodes.begin(), seen_.nodes.end(), [&](const NodeReport& n) {
    return n.rank >= 0 && reader_.ages_at(seen_.now) - n.age > ended_since_ + 2;
  });
  if (writes) {
    note("end of the job", "its ranks still write");
    ended_since_ = seen_.now;
  }
  return seen_.now - ended_since_ >= kQuiet ? JobState::ended : begun ? alive : JobState::absent;
}

void CommandAdaptor::look_at_nodes(const Job& now) {
  if (seen_.start != now.number) hosts_.clear();
  for (const NodeReport& n : seen_.nodes) hosts_.insert(n.name);
  // An answer is good until the next one should have come.
  const bool known = seen_.now - nodes_heard_ <= 2 * (templates_.every + templates_.seconds);
  for (const std::string& host : hosts_)
    if (known && is_down_.contains(host)) seen_.nodes.push_back({.name = host, .is_down = is_down_.at(host)});
  // A machine whose guard looks is not lost.
  if (hosts_.contains(host_name())) seen_.nodes.push_back({.name = host_name()});
}

void CommandAdaptor::look_at_end(int64_t number) {
  const nlohmann::json end = read_object(path(end_of(number)));
  seen_.exit_code = static_cast<int>(whole(end, "code", -1));
  if ((seen_.exit_code < 0 || seen_.exit_code > 130) && !seen_.failure)
    seen_.failure = FailureReport{.kind = FailureKind::lost, .message = "the job was killed"};
  if (seen_.exit_code == 130) seen_.failure = FailureReport{.kind = FailureKind::signal};
  if (seen_.exit_code == 2) seen_.failure = FailureReport{.kind = FailureKind::config};
}

const Observation& CommandAdaptor::observe() {
  seen_.now = monotonic_seconds() + offset_;
  seen_.wall = wall_seconds();
  const Job now = job();
  if (now.number == 0) {
    seen_.job = JobState::absent;
    seen_.start = 0;
    reader_.read_checkpoints(seen_);
    return seen_;
  }
  ask_commands(now);
  reader_.read(seen_, now.number, path(fmt::format("job-{}.log", now.number)));
  seen_.job = state_of(now);
  look_at_nodes(now);
  seen_.start = seen_.job == JobState::absent ? now.number - 1 : now.number;
  if (seen_.job == JobState::ended)
    look_at_end(now.number);
  else if (again_ && seen_.now - stopped_ >= templates_.every)
    stop(*again_);
  return seen_;
}

std::optional<std::vector<std::string>> CommandAdaptor::burn_in(const std::vector<std::string>& nodes) {
  if (templates_.burn_in.empty()) return std::vector<std::string>();
  for (const std::string& node : nodes) checked(node);
  if (tests_.empty())
    for (const std::string& node : nodes)
      tests_[node] =
          begun(fmt::format("burn-in-{}-{}", job().number, node),
                expand(templates_.burn_in, {{"node", node}, {"run", run_}}), templates_.burn_in_seconds);
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

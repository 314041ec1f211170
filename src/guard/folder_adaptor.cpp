// See folder_adaptor.h.
#include "guard/folder_adaptor.h"

#include <algorithm>

#include "base/clock.h"
#include "base/enum_json.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/foreign_json.h"
#include "base/invocation.h"
#include "report/json_lines.h"

namespace ingot::guard {
namespace {

constexpr uint64_t kLargest = 64 << 20;  ///< bytes of a file that is evidence

}  // namespace

std::string guard_folder(const std::string& run_folder) {
  const std::string folder = run_folder + "/guard";
  real_file_system().create_folders(folder);
  return folder;
}

FolderAdaptor::FolderAdaptor(const std::string& run_folder, Words command, std::string signal,
                             double begin_seconds)
    : run_(run_folder),
      folder_(guard_folder(run_)),
      reader_(run_),
      command_(std::move(command)),
      signal_(std::move(signal)),
      offset_(begin_seconds - monotonic_seconds()) {}

FolderAdaptor::Job FolderAdaptor::job() const {
  const nlohmann::json j = read_object(path("job.json"));
  return {whole(j, "number", 0), text_in(j, "id"), static_cast<int>(whole(j, "pid", 0))};
}

bool FolderAdaptor::has(const std::string& name) const {
  return real_file_system().exists(path(name));
}

const Observation& FolderAdaptor::observe() {
  seen_.now = monotonic_seconds() + offset_;
  seen_.wall = wall_seconds();
  const Job now = job();
  if (now.number == 0) {
    seen_.job = JobState::absent;
    seen_.start = 0;
    reader_.read_checkpoints(seen_);
    return seen_;
  }
  look_at(now);
  reader_.read(seen_, now.number, path(fmt::format("job-{}.log", now.number)));
  seen_.job = judge(now);
  seen_.start = seen_.job == JobState::absent ? now.number - 1 : now.number;
  if (seen_.job == JobState::ended) look_at_end(now.number);
  return seen_;
}

void FolderAdaptor::look_at_end(int64_t number) {
  const nlohmann::json end = read_object(path(fmt::format("end-{}.json", number)));
  seen_.exit_code = static_cast<int>(whole(end, "code", -1));
  if ((seen_.exit_code < 0 || seen_.exit_code > 130) && !seen_.failure)
    seen_.failure = FailureReport{.kind = FailureKind::lost, .message = "the job was killed"};
  if (seen_.exit_code == 130) seen_.failure = FailureReport{.kind = FailureKind::signal};
  if (seen_.exit_code == 2) seen_.failure = FailureReport{.kind = FailureKind::config};
}

void FolderAdaptor::start(const StartRequest& request) {
  if (job().number >= request.number) return;  // begun by a guard that was killed
  if (request.fewer)
    fail("a start on fewer nodes was asked for: change the job's command or options, then answer restart");
  begin(request);
}

std::string FolderAdaptor::write_script(const StartRequest& request) {
  Words words = command_;
  if (request.from_step >= 0) words.insert(words.end(), {"--from", std::to_string(request.from_step)});
  if (request.skip_batches > 0)
    words.insert(words.end(), {"--skip-batches", std::to_string(request.skip_batches)});
  std::string command;
  for (const std::string& word : words) command += " " + shell_word(word);
  const std::string n = std::to_string(request.number), script = path("job-" + n + ".sh");
  write_file_atomically(
      real_file_system(), script,
      fmt::format("#!/bin/sh\n"
                  "# Start {0} of a job of ingot guard.\n"
                  "mkdir {1} || exit 75  # this start has run\n"
                  "exec >>{2} 2>&1\n"
                  "trap asked=1 TERM INT HUP USR1\n"
                  "INGOT_GUARD_START={0}{3} &\n"
                  "job=$!\n"
                  "trap 'kill -{4} $job 2>/dev/null' TERM INT HUP USR1\n"
                  "[ -z \"$asked\" ] || kill -{4} $job\n"
                  "wait $job; code=$?\n"
                  "while kill -0 $job 2>/dev/null; do wait $job; code=$?; done\n"
                  "echo \"{{\\\"code\\\": $code}}\" >{5}.tmp && mv {5}.tmp {5}\n"
                  "exit $code\n",
                  request.number, shell_word(path("begun-" + n)), shell_word(path("job-" + n + ".log")),
                  command, signal_, shell_word(path("end-" + n + ".json"))));
  return script;
}

void FolderAdaptor::save_evidence(int64_t entry) {
  FileSystem& fs = real_file_system();
  const std::string to = fmt::format("{}/evidence/{}", folder_, entry);
  fs.create_folders(to);
  for (const std::string& name : fs.list(run_)) {
    const std::string from = run_ + "/" + name;
    const bool tells = name == "failure.json" || name == "run.json" || name.starts_with("flight-");
    if (tells && fs.size(from) <= kLargest) write_file_atomically(fs, to + "/" + name, fs.read(from));
  }
}

void FolderAdaptor::alert(const std::string& text) {
  using Json = nlohmann::ordered_json;
  const Json j{{"time", wall_seconds()}, {"text", text}};
  append_line(real_file_system(), path("alerts.jsonl"),
              j.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::optional<std::vector<Action>> FolderAdaptor::ask(int64_t entry, const std::string& text) {
  const std::string question = fmt::format("question-{}.json", entry);
  if (!has(question)) {
    const nlohmann::ordered_json j{{"entry", entry}, {"time", wall_seconds()}, {"text", text}};
    write_file_atomically(real_file_system(), path(question), j.dump() + "\n");
    alert("a person is asked: " + text);
  }
  try {
    return read_object(path(fmt::format("answer-{}.json", entry))).at("actions").get<std::vector<Action>>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

void answer_question(const std::string& run_folder, const std::vector<Action>& actions) {
  FileSystem& fs = real_file_system();
  const std::string folder = run_folder + "/guard";
  int64_t open = -1;
  if (fs.exists(folder))
    for (const std::string& name : fs.list(folder))
      if (name.starts_with("question-"))
        open = std::max(open, whole(read_object(folder + "/" + name), "entry", -1));
  const std::string answer = fmt::format("{}/answer-{}.json", folder, open);
  if (open < 0 || fs.exists(answer))
    throw Error(fmt::format("the guard of '{}' asks nothing", run_folder),
                "ingot guard status shows what it does");
  write_file_atomically(fs, answer, nlohmann::json{{"actions", actions}}.dump() + "\n");
}

}  // namespace ingot::guard

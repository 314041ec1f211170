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

FolderAdaptor::FolderAdaptor(std::string run_folder)
    : run_(std::move(run_folder)), folder_(guard_folder(run_)) {}

FolderAdaptor::Job FolderAdaptor::job() const {
  const nlohmann::json j = read_object(path("job.json"));
  return {whole(j, "number", 0), text_in(j, "id")};
}

void FolderAdaptor::record(const Job& job) {
  write_file_atomically(real_file_system(), path("job.json"),
                        fmt::format("{{\"number\": {}, \"id\": \"{}\"}}\n", job.number, job.id));
}

bool FolderAdaptor::has(const std::string& name) const {
  return real_file_system().exists(path(name));
}

std::string FolderAdaptor::write_script(const StartRequest& request, Words words, const std::string& signal) {
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
                  command, signal, shell_word(path(end_of(request.number)))));
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

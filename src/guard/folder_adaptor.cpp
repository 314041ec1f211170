// See folder_adaptor.h.
#include "guard/folder_adaptor.h"

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"

namespace ingot::guard {
namespace {

constexpr uint64_t kLargest = 64 << 20;  ///< bytes of a file that is evidence

void append_line(const std::string& path, const nlohmann::ordered_json& j) {
  const std::string line = j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  const auto file = real_file_system().open_append(path);
  file->append(line.data(), line.size());
  file->close();
}

}  // namespace

std::string guard_folder(const std::string& run_folder) {
  const std::string folder = run_folder + "/guard";
  real_file_system().create_folders(folder);
  return folder;
}

FolderAdaptor::FolderAdaptor(const std::string& run_folder, double begin_seconds)
    : run_(run_folder),
      folder_(guard_folder(run_)),
      reader_(run_),
      offset_(begin_seconds - monotonic_seconds()) {}

void FolderAdaptor::look_at_clocks() {
  seen_.now = monotonic_seconds() + offset_;
  seen_.wall = wall_seconds();
}

void FolderAdaptor::look_at_end(int64_t number) {
  seen_.exit_code = -1;
  const auto end =
      nlohmann::json::parse(read_small(path(fmt::format("end-{}.json", number))), nullptr, false);
  if (end.is_object()) seen_.exit_code = static_cast<int>(whole(end, "code", -1));
  const bool killed = seen_.exit_code < 0 || seen_.exit_code > 130;
  if (killed && !seen_.failure)
    seen_.failure = FailureReport{.kind = FailureKind::lost, .message = "the job was killed"};
  if (seen_.exit_code == 130) seen_.failure = FailureReport{.kind = FailureKind::signal};
  if (seen_.exit_code == 2) seen_.failure = FailureReport{.kind = FailureKind::config};
}

std::vector<std::string> FolderAdaptor::job_command(const std::vector<std::string>& command,
                                                    const StartRequest& request) {
  std::vector<std::string> words = command;
  if (request.from_step >= 0)
    for (const std::string& word : {std::string("--from"), std::to_string(request.from_step)})
      words.push_back(word);
  if (request.skip_batches > 0)
    for (const std::string& word : {std::string("--skip-batches"), std::to_string(request.skip_batches)})
      words.push_back(word);
  return words;
}

void FolderAdaptor::save_evidence(int64_t entry) {
  FileSystem& fs = real_file_system();
  const std::string to = fmt::format("{}/evidence/{}", folder_, entry);
  fs.create_folders(to);
  std::vector<std::string> names{"failure.json", "run.json"};
  for (const std::string& name : fs.list(run_))
    if (name.starts_with("flight-")) names.push_back(name);
  for (const std::string& name : names)
    if (fs.exists(run_ + "/" + name) && fs.size(run_ + "/" + name) <= kLargest)
      write_file_atomically(fs, to + "/" + name, fs.read(run_ + "/" + name));
}

void FolderAdaptor::alert(const std::string& text) {
  append_line(path("alerts.jsonl"), {{"time", wall_seconds()}, {"text", text}});
}

void FolderAdaptor::ask(int64_t entry, const std::string& text) {
  const std::string question = path(fmt::format("question-{}.json", entry));
  if (real_file_system().exists(question)) return;
  const nlohmann::ordered_json j{{"entry", entry}, {"time", wall_seconds()}, {"text", text}};
  write_file_atomically(real_file_system(), question, j.dump() + "\n");
  alert("a person is asked: " + text);
}

std::optional<std::vector<Action>> FolderAdaptor::answer(int64_t entry) {
  const std::string text = read_small(path(fmt::format("answer-{}.json", entry)));
  const auto j = nlohmann::json::parse(text, nullptr, false);
  if (!j.is_object() || !j.contains("actions") || !j["actions"].is_array()) return std::nullopt;
  std::vector<Action> actions;
  for (const auto& a : j["actions"]) {
    if (!a.is_string()) return std::nullopt;
    actions.push_back(enum_from<Action>(a.get<std::string>(), "action"));
  }
  return actions;
}

void answer_question(const std::string& run_folder, const std::vector<Action>& actions) {
  FileSystem& fs = real_file_system();
  const std::string folder = run_folder + "/guard";
  int64_t open = -1;
  if (fs.exists(folder))
    for (const std::string& name : fs.list(folder)) {
      const auto j = nlohmann::json::parse(
          name.starts_with("question-") ? read_small(folder + "/" + name) : "", nullptr, false);
      if (j.is_object()) open = std::max(open, whole(j, "entry", -1));
    }
  if (open < 0 || fs.exists(fmt::format("{}/answer-{}.json", folder, open)))
    throw Error(fmt::format("the guard of '{}' asks nothing", run_folder),
                "ingot guard status shows what it does");
  nlohmann::ordered_json j{{"actions", nlohmann::ordered_json::array()}};
  for (const Action a : actions) j["actions"].push_back(name_of(a));
  write_file_atomically(fs, fmt::format("{}/answer-{}.json", folder, open), j.dump() + "\n");
}

}  // namespace ingot::guard

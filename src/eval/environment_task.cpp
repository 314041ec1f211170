// See environment_task.h.
#include "eval/environment_task.h"

#include "base/error.h"
#include "base/hash.h"
#include "environments/environment.h"
#include "environments/rows.h"

namespace ingot {
namespace {

constexpr std::string_view kTextForm = "+text", kSwitchForm = "+switch";

/// Whether `spec` ends with `form`, which is then taken off.
bool take_form(std::string& spec, std::string_view form) {
  if (!spec.ends_with(form)) return false;
  spec.resize(spec.size() - form.size());
  return true;
}

}  // namespace

std::string environment_rows(const EnvironmentTask& e) {
  const environments::EnvironmentPointer environment = environments::find_environment(e.name);
  const environments::DifficultyRange range = environment->difficulty();
  const int64_t least = e.least < 0 ? range.least : e.least, most = e.most < 0 ? range.most : e.most;
  if (least < range.least || most > range.most || least > most)
    throw Error(fmt::format("difficulties {} to {} of environment '{}'", least, most, e.name),
                fmt::format("it has {} to {}", range.least, range.most));
  std::string rows;
  for (int64_t i = 0; i < e.problems; ++i) {
    // Difficulties in turn, so that the first rows of a task have all of them.
    const int64_t difficulty = least + i % (most - least + 1);
    const environments::Problem problem = environment->make(
        environments::kHeldOutSeeds + static_cast<uint64_t>(e.seed), static_cast<uint64_t>(i), difficulty);
    TaskJson row = {{"id", problem.id()},
                    {"difficulty", difficulty},
                    {"prompt", ""},
                    {"messages", TaskJson::array()},
                    {"answer", ""}};
    std::string text;
    for (const chat::Message& m : problem.prompt.messages) {
      text += m.content.value_or("") + "\n";
      row["messages"].push_back({{"role", m.role}, {"content", m.content.value_or("")}});
    }
    row["prompt"] = text;
    const Random random(static_cast<uint64_t>(e.seed), RandomPurpose::environment,
                        hash64("task " + problem.id()));
    if (const auto reply = environment->solve(problem, random, environments::TraceStyle::answer))
      row["answer"] = reply->content.value_or("");
    rows += row.dump() + "\n";
  }
  return rows;
}

bool names_environment_task(const std::string& name) {
  return name.find('@') != name.npos && !name.ends_with(".toml");
}

Task environment_task(const std::string& name, int64_t limit, int64_t samples) {
  std::string spec = name;
  const bool text = take_form(spec, kTextForm), switched = !text && take_form(spec, kSwitchForm);
  if (switched && samples != 1)
    throw Error(fmt::format("'{}' with {} samples", name, samples), "the switch is asked once a problem");
  const size_t at = spec.rfind('@');
  const environments::ProblemMix mix =
      environments::problem_mix(spec.substr(0, at) + ":" + spec.substr(at + 1));
  std::string file_name;  // of results: a path has characters that names of files may not have
  for (const char c : name)
    file_name += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' ? c : '_';
  const std::string metrics = switched ? R"("think_follow", "well_formed")"
                              : samples == 1
                                  ? (text ? R"("reward")" : R"("reward", "well_formed")")
                                  : fmt::format(R"("avg@{0}", "majority@{0}", "best@{0}")", samples);
  const std::string toml = fmt::format(
      "name = \"{}\"\nkind = \"generation\"\nmetrics = [{}]\n[sampling]\ntemperature = 1\nsamples = {}\n"
      "[chat]\nenabled = {}\nthinking = \"{}\"\n[environment]\nname = \"{}\"\nleast = {}\nmost = {}\n",
      file_name, metrics, samples, !text, switched ? "switched" : "default", mix.environment->name(),
      mix.difficulty.least, mix.difficulty.most);
  return Task::parse(toml, name, "", name, "", "", limit);
}

JudgedAnswer judge_row(const TaskJson& row, const std::string& content, const std::string& where) {
  const auto id = row.find("id");
  if (id == row.end() || !id->is_string()) fail("{} has no text 'id' of a problem", where);
  const environments::Problem problem = environments::problem_of(id->get<std::string>());
  environments::Verdict verdict =
      environments::find_environment(problem.environment)->judge(problem, content);
  if (verdict.infrastructure) fail("{}: {}", where, verdict.note);
  return {verdict.reward, std::move(verdict.answer)};
}

Task open_task(FileSystem& fs, const std::string& name, const std::vector<std::string>& folders,
               const std::string& data_folder, int64_t limit, int64_t samples) {
  if (names_environment_task(name)) return environment_task(name, limit, samples);
  return Task::load(fs, task_path(fs, name, folders), data_folder, limit);
}

}  // namespace ingot

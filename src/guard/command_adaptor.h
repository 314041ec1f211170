// A job of a batch system or a cloud, by command templates. The guard trusts no answer: a command that hangs
// is killed at its limit, one that fails or says a word that the templates do not have has not answered, and
// a job that is said to have ended while its ranks still write has not. Each is told once until it answers
// again. A start leaves its intention behind before its command runs, so that a guard which was killed
// meanwhile looks for the job by its name; the script itself runs once for each start, however often it is
// submitted, and records its exit code.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "guard/command.h"
#include "guard/command_templates.h"
#include "guard/folder_adaptor.h"

namespace ingot::guard {

class CommandAdaptor final : public FolderAdaptor {
 public:
  /// `options` are words for {options}. `begin_seconds`: what the guard's clock shows now.
  CommandAdaptor(const std::string& run_folder, Words command, CommandTemplates templates, Words options,
                 double begin_seconds);
  const Observation& observe() override;
  void start(const StartRequest& request) override;
  void stop(bool at_once) override;
  void burn_in(const std::vector<std::string>& nodes) override;
  std::optional<std::vector<std::string>> burned_in() override;

 private:
  struct Job {
    int64_t number = 0;
    std::string id;
  };
  enum class Claim { none, waiting, running, ended };
  Job job() const;
  void record(const Job& job);
  std::string name_of_start(int64_t number) const;
  std::string find(int64_t number);
  void write_script(const StartRequest& request);
  CommandResult run(const char* what, const Words& words);
  void note(const std::string& what, const std::string& trouble);
  void ask_cluster(const Job& job);
  void hear_state(const CommandResult& result);
  void hear_nodes(const CommandResult& result);
  JobState judge(const Job& job);

  const Words command_;
  const CommandTemplates templates_;
  const Words options_;
  std::map<std::string, std::string> noted_;  // trouble of a command, told until it answers
  std::unique_ptr<Command> state_, nodes_;
  double asked_ = -1e9;
  int64_t claim_start_ = 0;
  Claim claim_ = Claim::none;
  double ended_since_ = -1;
  std::set<std::string> down_, up_, hosts_;
  double nodes_heard_ = -1e9;
  std::optional<bool> again_;  // stop() to repeat: its command failed
  double stopped_ = 0;
  std::map<std::string, std::unique_ptr<Command>> tests_;
};

/// The words of a template. A word that is {options} becomes all of them; a word with a placeholder whose
/// value is empty is left out.
Words expand(const Words& words, const std::map<std::string, std::string>& values, const Words& options);
/// A word as a shell reads it.
std::string quoted(const std::string& word);

}  // namespace ingot::guard

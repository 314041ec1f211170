// A job of this machine, a batch system or a cloud, by command templates. The guard trusts no answer: a
// command that hangs is killed at its limit, one that fails or says a word that the templates do not have has
// not answered, and a job that is said to have ended while its ranks still write has not. Each is told once
// until it answers again. A start leaves its intention behind before its command runs, so that a guard which
// was killed meanwhile looks for the job by its name.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "guard/command_templates.h"
#include "guard/folder_adaptor.h"
#include "guard/run_reader.h"

namespace ingot::guard {

class CommandAdaptor final : public FolderAdaptor {
 public:
  /// `command` is the job's program with its arguments, `options` are words for {options}. `begin_seconds`:
  /// what the guard's clock shows now.
  CommandAdaptor(const std::string& run_folder, Words command, CommandTemplates templates, Words options,
                 double begin_seconds);
  const Observation& observe() override;
  /// Error where a person must arrange it: on fewer nodes; without nodes that templates cannot leave out,
  /// whose next request is obeyed.
  void start(const StartRequest& request) override;
  void stop(bool at_once) override;
  std::optional<std::vector<std::string>> burn_in(const std::vector<std::string>& nodes) override;

 private:
  /// Asks for the states of job and nodes, and hears the answers that have come.
  void ask_commands(const Job& job);
  JobState state_of(const Job& job);
  void look_at_nodes(const Job& job);
  void look_at_end(int64_t number);
  std::string name_of_start(int64_t number) const;
  Words words_for(const Words& words, const Job& job) const;
  /// Starts a command, its output in <what>.txt.
  std::unique_ptr<Command> begun(const std::string& what, const Words& words, double seconds);
  CommandResult run(const std::string& what, const Words& words);
  /// The id of the job of that start; empty: there is none.
  std::string find(int64_t number);
  /// Tells of trouble with a command, once until there is none.
  void note(const std::string& what, const std::string& trouble);
  void hear_state(const CommandResult& result);
  void hear_nodes(const CommandResult& result);

  const Words command_;
  const CommandTemplates templates_;
  const Words options_;
  const double offset_;  // of the guard's clock to the machine's
  RunReader reader_;
  Observation seen_;
  int64_t refused_ = 0;          // number of a start without nodes that cannot be left out
  std::set<std::string> noted_;  // commands whose trouble was told
  std::unique_ptr<Command> state_, nodes_;
  double asked_ = -1e9;
  int64_t asked_of_ = 0;     // start
  double ended_since_ = -1;  // of a job that is said to have ended; -1: it is not
  std::set<std::string> hosts_;
  std::map<std::string, bool> is_down_;  // of nodes that the last answer named
  double nodes_heard_ = -1e9;
  std::optional<bool> again_;  // stop() to repeat: its command failed
  double stopped_ = 0;
  std::map<std::string, std::unique_ptr<Command>> tests_;
};

}  // namespace ingot::guard

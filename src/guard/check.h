// `ingot guard check`: what a job's rules would do, and what of the job cannot work, before anything starts.
#pragma once
#include <string>
#include <vector>

#include "guard/decide.h"
#include "guard/job_file.h"
#include "guard/rules.h"

namespace ingot::guard {

/// Of each rule: its sign, the facts that it looks at, when it acts, its actions, its limit and what comes
/// beyond. With `scope` also which of its actions a person is asked for.
std::string describe(const std::vector<Rule>& rules, const Scope* scope);

/// What is wrong with a job whose file could be read, a sentence each: programs that cannot be started.
std::vector<std::string> defects(const JobFile& job);

/// What the file at `path`, of a job or of rules, describes. Error with every defect.
std::string check_file(const std::string& path);

}  // namespace ingot::guard

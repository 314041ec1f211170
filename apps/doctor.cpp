// `ingot doctor`: checks the machine and the program for what slows down or prevents runs, and says what to
// do.
#include "measure/doctor.h"

#include <CLI/CLI.hpp>

#include "apps/bench.h"
#include "apps/command_line.h"
#include "train/memory_policy.h"

namespace ingot {

void add_doctor_command(CLI::App& app, int& code) {
  struct DoctorArguments {
    std::string folder = ".", disk = "64MiB";
    JsonOption json;
  };
  auto o = std::make_shared<DoctorArguments>();
  CLI::App* c = app.add_subcommand("doctor", "check this machine for what slows down or prevents runs");
  c->footer("The exit code is 0 unless there is a problem.");
  c->add_option("folder", o->folder, "where runs will be stored")->capture_default_str();
  c->add_option("--disk", o->disk, "bytes to write there three times to measure the disk; 0: skip")
      ->capture_default_str();
  add_json_option(*c, o->json);
  c->callback([o, &code] {
    DoctorOptions options;
    options.folder = o->folder;
    options.disk_bytes = o->disk == "0" ? 0 : parse_memory(o->disk, "--disk");
    const std::vector<Finding> findings = examine(options);
    o->json.print(to_text(findings), to_json(findings));
    code = any_problem(findings) ? 1 : 0;
  });
}

}  // namespace ingot

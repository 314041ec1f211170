// `ingot doctor`: checks the machine and the program for what slows down or prevents runs, and says what to
// do.
#include "measure/doctor.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/bench.h"
#include "base/file_system.h"
#include "train/memory_policy.h"

namespace ingot {

void add_doctor_command(CLI::App& app, int& code) {
  struct DoctorArguments {
    std::string folder = ".", disk = "64MiB", json;
  };
  auto o = std::make_shared<DoctorArguments>();
  CLI::App* c = app.add_subcommand("doctor", "check this machine for what slows down or prevents runs");
  c->footer("The exit code is 0 unless there is a problem.");
  c->add_option("folder", o->folder, "where runs will be stored")->capture_default_str();
  c->add_option("--disk", o->disk, "bytes to write there three times to measure the disk; 0: skip")
      ->capture_default_str();
  c->add_option("--json", o->json, "also write the findings to this file");
  c->callback([o, &code] {
    DoctorOptions options;
    options.folder = o->folder;
    options.disk_bytes = o->disk == "0" ? 0 : parse_memory(o->disk, "--disk");
    const std::vector<Finding> findings = examine(options);
    std::cout << to_text(findings);
    if (!o->json.empty()) write_file_atomically(real_file_system(), o->json, to_json(findings));
    code = any_problem(findings) ? 1 : 0;
  });
}

}  // namespace ingot

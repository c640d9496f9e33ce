// How far a long reading or counting has come, on stderr and only on a terminal. Owner: the
// command. Threads: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace kv::cachesim {

class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  Progress(Progress&&) = delete;
  Progress& operator=(Progress&&) = delete;

  [[nodiscard]] bool on() const { return on_; }
  void start(std::string what) { what_ = std::move(what); }
  void report(std::uint64_t done, std::uint64_t total);
  void clear();  // before anything else is printed

 private:
  bool on_;
  bool shown_ = false;
  std::string what_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace kv::cachesim

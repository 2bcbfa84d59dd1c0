#include "cli/signals.h"

#include <csignal>
#include <cstdlib>

namespace moeway::cli {
namespace {

constexpr int kCaught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

volatile std::sig_atomic_t caught_signal = 0;

void note_signal(int signal) { caught_signal = signal; }

void set_action(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

SignalCatcher::SignalCatcher() {
  caught_signal = 0;
  for (const int signal : kCaught) set_action(signal, note_signal);
}

SignalCatcher::~SignalCatcher() {
  for (const int signal : kCaught) set_action(signal, SIG_DFL);
}

int SignalCatcher::caught() { return caught_signal; }

void leave_signals_to_parent() {
  for (const int signal : kCaught) set_action(signal, signal == SIGTERM ? SIG_DFL : SIG_IGN);
}

void end_by(int signal) {
  set_action(signal, SIG_DFL);
  std::raise(signal);
  std::_Exit(1);
}

}  // namespace moeway::cli

// What a CPU does while nothing can go on: never a bare spin, since the peer that is waited for may need this core.
#pragma once

#include <cstdint>

namespace moeway::exec {

// The `tries`-th time in a row. A few spins, then yields, then sleeps of 20 to 100 microseconds: with 8 ranks on 2
// cores this takes a round from 30-150 ms (spinning alone) to 0.5-2 ms.
void back_off(uint32_t tries);

}  // namespace moeway::exec

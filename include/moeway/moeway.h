// moeway moves tokens to experts and back (dispatch and combine) for Mixture-of-Experts models. This header is the
// whole C++ interface.
//
// The C++ interface is inline code over the C one (c_api.h), which holds the contracts. A round in short:
//
//   auto bootstrap = moeway::Bootstrap::env();                                  // torchrun, Open MPI, Slurm
//   auto communicator = moeway::Communicator::create(std::move(bootstrap.value()));
//   moeway::AllToAllConfig config;                                              // set E, K, H, M
//   auto all_to_all = moeway::AllToAll::create(communicator.value(), config);
//   auto routing = all_to_all.value().dispatch(input, output);                  // tokens to experts
//   ... run the experts on output.x ...
//   moeway::Status done = all_to_all.value().combine(routing.value(), rows, y); // results back, weighted and summed
#pragma once

#include <moeway/all_to_all.h>
#include <moeway/bootstrap.h>
#include <moeway/communicator.h>
#include <moeway/routing.h>
#include <moeway/status.h>
#include <moeway/tensor.h>

"""A market whose providers stay on their own machines, reached over gRPC with mutual TLS.

The arbiter's side is `engine`, which asks through a `transport` and sets aside who keeps failing. The provider's side
is `worker`, which answers from its own data by its own `policy` and `privacy`, and `provider`, which keeps it
connected. Both speak `messages`. `enrolment` and `server` are the operator's. `wire` imports gRPC, for
`market_server`, `provider` and `grpc_transport`.

What the parties sign is in `signatures`: providers their replies, the market its `receipts`, which `receipt_sender`
sends. `disputes` holds a ledger against them.
"""

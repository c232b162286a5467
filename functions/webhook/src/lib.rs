//! The webhook function: verified webhooks in, each accepted once and put on the queue.

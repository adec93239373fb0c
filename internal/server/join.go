package server

import (
	"context"

	"google.golang.org/grpc"
)

// JoinUnary makes one interceptor of several, the outermost first, for whatever takes only one.
func JoinUnary(interceptors ...grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		for i := len(interceptors) - 1; i >= 0; i-- {
			outer, inner := interceptors[i], handler
			handler = func(ctx context.Context, req any) (any, error) { return outer(ctx, req, info, inner) }
		}
		return handler(ctx, req)
	}
}

// JoinStream is JoinUnary for streams.
func JoinStream(interceptors ...grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		for i := len(interceptors) - 1; i >= 0; i-- {
			outer, inner := interceptors[i], handler
			handler = func(srv any, ss grpc.ServerStream) error { return outer(srv, ss, info, inner) }
		}
		return handler(srv, ss)
	}
}

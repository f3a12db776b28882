-- Lists a process as alive until the given time has passed, and takes those off whose time has.
-- KEYS: the processes.
-- ARGV: the process, as JSON that stays the same while it lives; ms.
-- Returns: 0.

local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'zset' then return { -2, KEYS[1], kind, 'zset' } end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%d', now + tonumber(ARGV[2])), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', now - 1))
return { 0 }

-- Reads the processes that are alive.
-- KEYS: the processes.
-- Returns: 0; the JSON of each.

local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'zset' then return { -2, KEYS[1], kind, 'zset' } end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
return { 0, redis.call('ZRANGE', KEYS[1], string.format('%d', now), '+inf', 'BYSCORE') }

-- Registers entries of cron. Ticks until now are nobody's where an entry is new, or its spec or zone is another one.
-- KEYS: cron, cron_jobs, cron_ticks; for each entry: the key that says it was removed.
-- ARGV: 1 to replace what is registered, and to bring back what was removed, 0 to add only what is missing; for each entry: its
--   key, its definition, the job's deadline in ms (or '') and a space and its record less its first 14 bytes, a fingerprint of
--   all that, one of spec and zone.
-- Returns: 0; for each entry a letter: n new, s the same as it was, c changed, t changed in its times, r removed, k another one is kept,
--   f the key that says it was removed is foreign; for each f the type of that. What has lost its definition or its job is missing, also where
--   something else stands in its place.

local types = { HASH, HASH, HASH }
for i = 4, #KEYS do types[i] = 'string' end
local bad = foreign(types, 3)
if bad then return bad end
local cron, cronJobs, cronTicks = KEYS[1], KEYS[2], KEYS[3]
local now, replace, letters = clock(), ARGV[1] == '1', {}
local definitions, templates, states, back, wrongs = {}, {}, {}, {}, {}
local function field(hash, key) return live[hash] and call('HGET', hash, key) or '' end

for i = 1, (#ARGV - 1) / 5 do
  local at = 5 * i - 3
  local key, rev, timing = ARGV[at], ARGV[at + 3], ARGV[at + 4]
  local old = live[cronTicks] and call('HGET', cronTicks, key)
  local on, high, last, was, times, job = match(old or '', '^(%d) (%d+) (%d+) (%x+) (%x+) (.*)$')
  local letter, wrong = 'n', check(3 + i, 3 + i)
  local about, made = field(cron, key), field(cronJobs, key)
  local intact = sub(about, 1, 1) == '{' and madeOf(made)
  local same = was == rev and about == ARGV[at + 1] and made == ARGV[at + 2]
  if wrong then
    letter = 'f'
    wrongs[#wrongs + 1] = wrong[3]
  elseif on and same then
    letter = 's'
  elseif on and intact and was ~= rev and not replace then
    letter = 'k'
  elseif on then
    letter = times == timing and 'c' or 't'
  elseif not replace and live[KEYS[3 + i]] then
    letter = 'r'
  end
  letters[i] = letter
  if letter == 'n' or letter == 'c' or letter == 't' then
    if letter == 'n' then on, high, last, job = '1', '0', '0', '' end
    if letter ~= 'c' then high = nobodys(high, now) end
    local n = #states
    definitions[n + 1], definitions[n + 2] = key, ARGV[at + 1]
    templates[n + 1], templates[n + 2] = key, ARGV[at + 2]
    states[n + 1], states[n + 2] = key, on .. ' ' .. high .. ' ' .. last .. ' ' .. rev .. ' ' .. timing .. ' ' .. job
    if live[KEYS[3 + i]] then back[#back + 1] = KEYS[3 + i] end
  end
end
if #states > 0 then
  local changes = tonumber(live[cronTicks] and call('HGET', cronTicks, '') or 0) or 0
  states[#states + 1] = ''
  states[#states + 1] = whole(math.max(changes + 1, now)) -- never one that was there before, also when all was lost meanwhile
  add('HSET', cron, definitions)
  add('HSET', cronJobs, templates)
  add('HSET', cronTicks, states)
  for i = 1, #back do call('UNLINK', back[i]) end
end
return { 0, table.concat(letters), wrongs }
